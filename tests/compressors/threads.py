"""Workers as threads of one process, as the laws of compressors have them."""

from harness.contract.threads import DEADLINE_S as DEADLINE_S
from harness.contract.threads import ThreadMeeting as Meeting  # noqa: F401
from harness.contract.threads import ThreadWorkers as ThreadWorkers
from harness.contract.threads import shapes as shapes
from harness.contract.threads import together as together
