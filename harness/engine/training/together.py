"""What all ranks of a run do at once: begin, stop their clocks, tell each other, go on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from harness.clock import Clock


class Together(Protocol):
    """As one of them sees it; clocks are in real seconds. Here: one that waits for nobody."""

    def begin(self) -> float:
        """Wait for all: when the first step begins."""
        return 0.0

    def stop(self, arrived: float) -> None:
        """Wait for all; the clock stands still at the time of the first that arrived."""
        return None

    def barrier_min(self, mine: float) -> float:
        """Wait for all; the smallest of what they bring."""
        return mine

    def gather(self, mine: Any) -> list[Any]:
        """Every rank's, by rank."""
        return [mine]

    def go_on(self, arrived: float) -> None:
        """Once all are back; each at its own time, as far from the others as it was."""
        return None


@dataclass
class Machines:
    """Ranks that are processes, of which the first of each machine keeps its clock."""

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
