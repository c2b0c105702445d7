"""Workers as threads of one process, with collectives at a barrier and counts of sent bytes.

The laws of compressors run on them.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

DEADLINE_S = 30.0  # limit at a barrier, so that a test fails if workers disagree


class ThreadMeeting:
    """Barrier at which `size` threads exchange one object each."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size)
        self._brought: list[Any] = [None] * size

    def exchange(self, rank: int, thing: Any) -> list[Any]:
        """Return all workers' things by rank; raise BrokenBarrierError after DEADLINE_S."""
        self._brought[rank] = thing
        self._barrier.wait(DEADLINE_S)
        everything = list(self._brought)
        self._barrier.wait(DEADLINE_S)
        return everything

    def leave(self) -> None:
        """Abort the meeting, so that the other threads fail instead of waiting for this worker."""
        self._barrier.abort()


@dataclass
class ThreadWorkers:
    """One rank's collectives, with counts of its bytes; its own piece of an all-to-all is free."""

    rank: int
    meeting: ThreadMeeting
    reduced_bytes: int = field(default=0, init=False)  # tensors given to all_reduce
    gathered_bytes: int = field(default=0, init=False)  # tensors given to all_gather
    routed_bytes: int = field(default=0, init=False)  # tensors given to all_to_all, for others

    @property
    def world_size(self) -> int:
        return self.meeting.size

    @property
    def contributed_bytes(self) -> int:
        return self.reduced_bytes + self.gathered_bytes + self.routed_bytes

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        self.reduced_bytes += tensor.nbytes
        part = tensor.mul(1 / self.world_size) if op == "mean" else tensor.clone()
        parts = self.meeting.exchange(self.rank, part)
        assert len({(part.shape, part.dtype) for part in parts}) == 1, (
            "all_reduce of unlike tensors"
        )
        tensor.zero_()
        for part in parts:
            tensor.add_(part)
        return tensor

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        self.gathered_bytes += sum(tensor.nbytes for tensor in tensors)
        brought = self.meeting.exchange(self.rank, tuple(tensor.clone() for tensor in tensors))
        _check([(shapes(theirs), shapes(tensors)) for theirs in brought], equal)
        return [tuple(tensor.clone() for tensor in theirs) for theirs in brought]

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        assert all(len(column) == self.world_size for column in pieces), "one piece to every worker"
        for_each = [tuple(tensor.clone() for tensor in row) for row in zip(*pieces, strict=True)]
        others = [row for peer, row in enumerate(for_each) if peer != self.rank]
        self.routed_bytes += sum(tensor.nbytes for row in others for tensor in row)
        brought = self.meeting.exchange(self.rank, for_each)
        arrived = [theirs[self.rank] for theirs in brought]
        _check([(shapes(theirs), shapes(for_each[self.rank])) for theirs in arrived], equal)
        return arrived


def shapes(tensors: tuple[Tensor, ...]) -> list[tuple[torch.dtype, int]]:
    """Return (dtype, length) of each tensor. Raise AssertionError if one is not 1-D."""
    assert all(tensor.dim() == 1 for tensor in tensors), "pieces must be 1-D"
    return [(tensor.dtype, len(tensor)) for tensor in tensors]


def _check(pairs: list[tuple[list, list]], equal: bool) -> None:
    for theirs, ours in pairs:
        assert [kind for kind, _ in theirs] == [kind for kind, _ in ours], "types differ"
        assert theirs == ours or not equal, "lengths differ, against the promise"


def together(size: int, work: Callable[[ThreadWorkers], Any]) -> list[Any]:
    """Run `work` on `size` threads; return results by rank, or raise the first failure."""
    torch.set_num_threads(1)
    meeting = ThreadMeeting(size)

    def guarded(rank: int) -> Any:
        try:
            return work(ThreadWorkers(rank, meeting))
        except BaseException:
            meeting.leave()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(guarded, rank) for rank in range(size)]
    failures = [failure for future in futures if (failure := future.exception())]
    for failure in sorted(failures, key=lambda one: isinstance(one, threading.BrokenBarrierError)):
        raise failure
    return [future.result() for future in futures]
