"""Workers as threads of one process: collectives at a barrier, with the bytes they would send."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

DEADLINE_S = 30.0  # at a barrier, so that a test whose workers disagree fails


class Meeting:
    """Where `size` threads exchange one object each."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size)
        self._brought: list[Any] = [None] * size

    def exchange(self, rank: int, thing: Any) -> list[Any]:
        self._brought[rank] = thing
        self._barrier.wait(DEADLINE_S)
        everything = list(self._brought)
        self._barrier.wait(DEADLINE_S)
        return everything


@dataclass
class ThreadWorkers:
    """One rank. Records the bytes it contributed."""

    rank: int
    meeting: Meeting
    reduced_bytes: int = field(default=0, init=False)  # tensors given to all_reduce
    gathered_bytes: int = field(default=0, init=False)  # tensors given to all_gather

    @property
    def size(self) -> int:
        return self.meeting.size

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self.reduced_bytes += tensor.nbytes
        parts = self.meeting.exchange(self.rank, tensor.clone())
        assert len({part.shape for part in parts}) == 1, "all_reduce of different shapes"
        tensor.zero_()
        for part in parts:
            tensor.add_(part, alpha=1 / self.size)
        return tensor

    def all_gather(self, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
        assert len({len(tensor) for tensor in tensors}) == 1
        self.gathered_bytes += sum(tensor.nbytes for tensor in tensors)
        return self.meeting.exchange(self.rank, tuple(tensor.clone() for tensor in tensors))


def together(size: int, work: Callable[[ThreadWorkers], Any]) -> list[Any]:
    """The results of `work` on `size` workers at once, by rank."""
    torch.set_num_threads(1)
    meeting = Meeting(size)
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(work, ThreadWorkers(rank, meeting)) for rank in range(size)]
        return [future.result(DEADLINE_S) for future in futures]
