"""Barriers over all ranks of a run: begin, stop the clocks, gather values, resume."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from harness.clock import Clock


class Together(Protocol):
    """One rank's barriers with all ranks, in real seconds. The defaults suit a single rank."""

    def begin(self) -> float:
        """Wait for all ranks. Return the clock time at which the first step begins."""
        return 0.0

    def stop(self, arrived: float) -> None:
        """Wait for all ranks. Stop the clock at the earliest `arrived` time."""
        return None

    def barrier_min(self, mine: float) -> float:
        """Wait for all ranks. Return the smallest of their values."""
        return mine

    def gather(self, mine: Any) -> list[Any]:
        """Return every rank's object, ordered by rank."""
        return [mine]

    def go_on(self, arrived: float) -> None:
        """Wait for all ranks and resume the clock. Return when it reads `arrived`."""
        return None


@dataclass
class Machines:
    """Ranks that are processes. The first rank of each machine controls its clock."""

    clock: Clock
    barrier_min: Callable[[float], float]
    gather: Callable[[Any], list[Any]]
    local_rank: int = 0  # among the ranks of its machine
    local_world_size: int = 1  # of its machine

    def begin(self) -> float:
        self.barrier_min(0.0)
        if self.local_rank == 0:
            self.clock.call_ready()
        self.clock.wait_running()
        return self.clock.now()

    def stop(self, arrived: float) -> None:
        first = self.barrier_min(arrived)
        if self.local_rank == 0:
            self.clock.pause(first)

    def go_on(self, arrived: float) -> None:
        self.clock.report_back(self.local_rank)
        if self.local_rank == 0:
            self.clock.resume_with(self.local_world_size)
        self.clock.wait_until(arrived)
