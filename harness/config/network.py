"""What everything below the command line may ask of the network that a run has chosen."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from harness.config.device_costs import Given
from profiles.base import Profile

CALIBRATED = "calibrated"  # choice that is virtual time with this machine's constants


class NetworkChoice(Protocol):
    """A choice of `conf/network`: one that comes up, or one of virtual time."""

    in_process: ClassVar[bool]  # whether its runs are made in the process that asks for them

    @property
    def device(self) -> Any:
        """Section with the device whose compression is charged; None: this machine's."""
        ...

    @property
    def update_s(self) -> float:
        """Seconds between looks at the profile."""
        ...

    @property
    def sample_s(self) -> float:
        """Seconds between rows of links.csv."""
        ...

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        """Raise ValueError for what cannot be, NetworkError for what this machine lacks."""
        ...

    def machines_of_run(self) -> int:
        """Number of machines that a run is on."""
        ...

    def gpus(self, workers: int) -> int:
        """GPUs that `workers` on this machine need."""
        ...

    def place(self, run_id: str) -> str:
        """Return the place, below the experiment's folder, where this machine keeps a run."""
        ...

    def compression(
        self,
        compressor: str,
        workers: int,
        dilation: float,
        represented: Callable[[], int | None] = ...,
    ) -> Given | None:
        """Given cost of the compressor in the file of that name; None: it is measured.

        `represented` tells the elements of the model that the one of this run stands in for.
        """
        ...
