"""Context of a rank: its identity, clock, workers and data, real or simulated."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.clock import RankClock
from harness.engine.exchange.bucket_lanes import Exchange
from harness.engine.exchange.collectives import Collectives
from harness.engine.training.replica import Distributed, Replica
from harness.engine.training.resume import Resumed
from harness.engine.training.together import Together
from harness.records.run_directory import Table
from harness.workloads.data.base import DataSet


def single_thread_executor(name: str) -> Any:
    """Return an executor of one thread, with this thread's count of torch threads.

    A new thread has a default count of its own, and matrix products round differently by it.
    """
    return ThreadPoolExecutor(1, name, torch.set_num_threads, (torch.get_num_threads(),))


def anew(name: str, make: Callable[[], Any]) -> Any:
    """Return a new object from `make`. Processes share none."""
    return make()


@dataclass
class Once:
    """Cache of objects by name. Each is made once, and ranks or threads share it."""

    made: dict[str, Any] = field(default_factory=dict)

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]


class RankContext(NamedTuple):
    """Identity of a rank, and everything that its environment provides."""

    run_dir: Path
    rank: int
    leads: bool  # True for one rank per machine
    clock: RankClock
    workers: Collectives  # the ranks that it exchanges gradients with
    device: torch.device
    together: Together  # barriers over all ranks
    data: DataSet
    begin: Resumed | None = None  # checkpoint that the run resumes from
    exchange: Callable[..., Any] = Exchange  # builds the gradient exchange
    replica: Callable[..., Replica] = Distributed  # builds the rank's copy of the model
    executor: Callable[[str], Any] = single_thread_executor
    once: Callable[[str, Callable[[], Any]], Any] = anew  # makes objects that ranks share, by name
    shared: Callable[[str, Callable[[], Any]], Any] = anew  # the same for the threads of a rank
    thread: int = 0  # index among the rank's threads
    pipeline_group: Any = None  # collectives of its pipeline's stages
    everyone: Any = None  # Collectives of all ranks, for pipelines and gossip
    channel: Any = None  # makes a Channel to another rank, by its number
    transport: Any = None  # connects trainers to their server

    def table(self, name: str) -> Table:
        return self.once(name, lambda: Table(self.run_dir, f"{name}.csv"))  # type: ignore[no-any-return]

    @property
    def tells(self) -> bool:
        """True if this rank writes all ranks' evaluations and events: rank 0, or the server."""
        return self.rank == 0 if self.transport is None else self.leads
