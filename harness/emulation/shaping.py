"""Base class of all networks that carry packets: queues, periods, and where a run takes place."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from harness.config import device_costs, queues
from harness.config.device_costs import Given
from harness.emulation import following
from profiles.base import Profile
from profiles.limits import check_between

PERIOD_S = (0.001, 3600.0)
SAMPLE_S = (0.001, 10.0)  # events between samples are recorded late, or only in sums


@dataclass(frozen=True, kw_only=True)
class Shaping:
    """Settings of every shaped network; the whole run is on this machine by default."""

    in_process: ClassVar[bool] = False  # a run has its own processes

    queue_ms: float | None = 50.0  # time of the queue at the highest rate; its bytes are constant
    queue_bytes: int | None = None  # instead of queue_ms
    update_s: float = 0.1  # real seconds between updates from the profile
    sample_s: float = 0.25  # real seconds between rows of links.csv
    probe_s: float = 0.5  # real seconds each link is measured before step 0
    device: Any = None  # device with emulated compression times; None: this machine

    def __post_init__(self) -> None:
        check_between(*PERIOD_S, update_s=self.update_s, probe_s=self.probe_s)
        check_between(*SAMPLE_S, sample_s=self.sample_s)
        if self.device is not None:
            device_costs.check(self.device)
        queues.check(self.queue_ms, self.queue_bytes)

    def queue(self, profile: Profile) -> int:
        """Return the bytes that each link direction buffers."""
        return queues.bytes_of(self.queue_ms, self.queue_bytes, profile)

    def packet_bytes(self, profile: Profile, dilation: float) -> int | None:
        """Return the most bytes that a node passes on as one packet; None: the kernel's 64 KB."""
        return None

    def check_followed(self, nodes: int, profile: Profile, dilation: float) -> None:
        """Raise ValueError if the profile changes faster than player and shapers can follow."""
        longest = self.packet_bytes(profile, dilation)
        following.check(profile, nodes, following.Shaped(dilation, self.update_s, longest))

    def compression(
        self,
        compressor: str,
        workers: int,
        dilation: float,
        represented: Callable[[], int | None] = lambda: None,
    ) -> Given | None:
        """Return the configured cost of a compressor in real seconds; None: measure it.

        `compressor` is the name of its file. `represented` returns the elements of the original
        model if the run's model is a stand-in.
        """
        found = device_costs.given(compressor, self.device or {}, dilation)
        return found and replace(found, represented=represented())

    def needs_netem(self, profile: Profile) -> bool:
        """Return False: only rates are shaped. Networks that impair packets override this."""
        return False

    def machines_of_run(self) -> int:
        """Return the number of machines of a run."""
        return 1

    def gpus(self, workers: int) -> int:
        """Return the GPUs that `workers` need here: one each, as NCCL cannot share one."""
        return workers

    def place(self, run_id: str) -> str:
        """Return this machine's directory of a run, relative to the experiment's folder."""
        return run_id
