"""Interface of networks, for all code below the command line."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from harness.config.device_costs import Given
from profiles.base import Profile
from profiles.limits import check_profile, check_whole

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


def check_halves(left: int | None, access: Any) -> None:
    """Raise ValueError unless `left` (node count) and `access` (profile of its links) are valid."""
    if left is not None:
        check_whole(1, left=left)
    if access is not None:
        check_profile(access=access)
        if access.extremes().flows:
            raise ValueError("access must be a profile without competing flows: use the trunk's")


def check_nodes(nodes: int, left: int | None) -> None:
    """Raise ValueError unless each half has at least one of the `nodes`."""
    if nodes < 2:
        raise ValueError(f"a dumbbell needs at least 2 nodes, got {nodes}")
    if left is not None:
        check_whole(1, nodes - 1, left=left)


def on_left(nodes: int, left: int | None) -> int:
    """Return the number of nodes on the left; None means half of `nodes`, rounded up."""
    return left or (nodes + 1) // 2
