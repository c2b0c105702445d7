"""Interface of networks, for all code below the command line."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from harness.config.device_costs import Given
from profiles.base import Profile

CALIBRATED = "calibrated"  # virtual time with this machine's constants


class NetworkChoice(Protocol):
    """A choice of `conf/network`: a network of real packets, or one in virtual time."""

    in_process: ClassVar[bool]  # True: runs take place in the calling process

    @property
    def device(self) -> Any:
        """Section of the device whose compression costs are charged; None for this machine."""
        ...

    @property
    def update_s(self) -> float:
        """Seconds between two reads of the profile."""
        ...

    @property
    def sample_s(self) -> float:
        """Seconds between two rows of links.csv."""
        ...

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        """Raise ValueError if arguments do not fit, NetworkError if the machine lacks a feature."""
        ...

    def machines_of_run(self) -> int:
        """Return the number of machines that take part in a run."""
        ...

    def gpus(self, workers: int) -> int:
        """Return the number of GPUs that `workers` on this machine need."""
        ...

    def place(self, run_id: str) -> str:
        """Return this machine's folder for a run, relative to the experiment's folder."""
        ...

    def compression(
        self,
        compressor: str,
        workers: int,
        dilation: float,
        represented: Callable[[], int | None] = ...,
    ) -> Given | None:
        """Return the cost model of `compressor` (a file of compressors/); None if it is measured.

        `represented` returns the elements of the original model, None without a stand-in.
        """
        ...
