"""What a rank is handed by its world: over packets, or in virtual time."""

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
    """An executor; a new thread has a number of its own, by which products are rounded."""
    return ThreadPoolExecutor(1, name, torch.set_num_threads, (torch.get_num_threads(),))


def anew(name: str, make: Callable[[], Any]) -> Any:
    """Make the object anew, as processes share none."""
    return make()


@dataclass
class Once:
    """Objects that the ranks of a world, or the threads of a rank, share, each made once."""

    made: dict[str, Any] = field(default_factory=dict)

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]


class RankContext(NamedTuple):
    """Identity of a rank, and what its world gives it."""

    run_dir: Path
    rank: int
    leads: bool  # the ranks of its machine: one of them does
    clock: RankClock
    workers: Collectives  # that it shares gradients with
    device: torch.device
    together: Together  # with all ranks
    data: DataSet
    begin: Resumed | None = None  # what the run goes on from
    exchange: Callable[..., Any] = Exchange  # what becomes of gradients
    replica: Callable[..., Replica] = Distributed  # who else computes with the model
    executor: Callable[[str], Any] = single_thread_executor
    once: Callable[[str, Callable[[], Any]], Any] = anew  # by name, what ranks share
    shared: Callable[[str, Callable[[], Any]], Any] = anew  # likewise, what threads of a rank do
    thread: int = 0  # of the rank
    pipeline_group: Any = None  # the stages of its pipeline
    everyone: Any = None  # Collectives of all ranks, of pipelines and of gossip
    channel: Any = None  # to another rank, by its number: a pipeline's Channel
    transport: Any = None  # between the trainers and their server

    def table(self, name: str) -> Table:
        return self.once(name, lambda: Table(self.run_dir, f"{name}.csv"))  # type: ignore[no-any-return]

    @property
    def tells(self) -> bool:
        """True for the one that writes evaluations and events of all: rank 0, or the server."""
        return self.rank == 0 if self.transport is None else self.leads
