"""What every network of packets is told: queues, periods; and where its runs live."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from harness.config import device_costs, queues
from harness.config.device_costs import Given
from harness.emulation import following
from profiles.base import Profile
from profiles.limits import check_between

PERIOD_S = (0.001, 3600.0)
SAMPLE_S = (0.001, 10.0)  # what happens between two samples is seen late, or in sums alone


@dataclass(frozen=True, kw_only=True)
class Shaping:
    """Settings of every shaped network: queues and periods.

    The whole run is on this machine unless a network says otherwise.
    """

    in_process: ClassVar[bool] = False  # a run has processes of its own

    queue_ms: float | None = 50.0  # of the profile's highest rate; constant bytes at lower rates
    queue_bytes: int | None = None  # instead of queue_ms
    update_s: float = 0.1  # real seconds between looks at the profile
    sample_s: float = 0.25  # real seconds between rows of links.csv
    probe_s: float = 0.5  # real seconds each link is measured before step 0
    device: Any = None  # whose compression is charged, where one is emulated; None: this machine's

    def __post_init__(self) -> None:
        check_between(*PERIOD_S, update_s=self.update_s, probe_s=self.probe_s)
        check_between(*SAMPLE_S, sample_s=self.sample_s)
        if self.device is not None:
            device_costs.check(self.device)
        queues.check(self.queue_ms, self.queue_bytes)

    def queue(self, profile: Profile) -> int:
        """Bytes that each direction buffers."""
        return queues.bytes_of(self.queue_ms, self.queue_bytes, profile)

    def packet_bytes(self, profile: Profile, dilation: float) -> int | None:
        """Most bytes that a node hands to its link as one packet; None: the kernel's own 64 KB."""
        return None

    def check_followed(self, nodes: int, profile: Profile, dilation: float) -> None:
        """ValueError for a profile that changes faster than the player and shapers can follow."""
        longest = self.packet_bytes(profile, dilation)
        following.check(profile, nodes, following.Shaped(dilation, self.update_s, longest))

    def compression(
        self,
        compressor: str,
        workers: int,
        dilation: float,
        represented: Callable[[], int | None] = lambda: None,
    ) -> Given | None:
        """Given cost of the compressor in the file of that name, in real seconds; None: measured.

        `represented` tells the elements of the model that the one of this run stands in for.
        """
        found = device_costs.given(compressor, self.device or {}, dilation)
        return found and replace(found, represented=represented())

    def needs_netem(self, profile: Profile) -> bool:
        """True if packets are ever delayed, lost or reordered, so that cables need netem."""
        return False

    def machines_of_run(self) -> int:
        """Number of machines that a run is on."""
        return 1

    def gpus(self, workers: int) -> int:
        """GPUs that `workers` on this machine need: one each, as NCCL cannot share one."""
        return workers

    def place(self, run_id: str) -> str:
        """Return the place, below the experiment's folder, where this machine keeps a run."""
        return run_id
