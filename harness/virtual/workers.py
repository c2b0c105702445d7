"""Collectives of simulated workers: they meet in one process, and are timed afterwards."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from harness.config.backends import BETWEEN_CPUS
from harness.engine.exchange.collectives import Collectives
from harness.virtual.costs import Costs
from harness.virtual.lanes import CollectiveCall, LaneOp

SEGMENT_BYTES, SEGMENTS_PER_RANK = BETWEEN_CPUS.segment_bytes, BETWEEN_CPUS.segments_per_rank
LENGTH_BYTES = 8  # per tensor length in a message


def ring_sum(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of `parts`, one per rank. Each addition is rounded in their type.

    The ring cuts a tensor into as many runs of segments as there are ranks. Run c travels round the
    ring from rank c - 1 down to rank c, where it is complete.
    """
    size, first = len(parts), parts[0]
    if size == 1 or not first.is_floating_point():
        return torch.stack(tuple(parts)).sum(0, dtype=first.dtype)
    flat = [part.reshape(-1) for part in parts]
    total = torch.empty_like(flat[0])
    run = _run_elements(first, size)
    for rank in range(size):
        segments = slice(rank * run, (rank + 1) * run)
        if total[segments].numel():
            torch.add(flat[rank - 1][segments], flat[rank - 2][segments], out=total[segments])
            for back in range(3, size + 1):
                total[segments].add_(flat[rank - back][segments])
    return total.view(first.shape)


def _run_elements(tensor: Tensor, size: int) -> int:
    """Return the elements of a run. The last runs may be shorter or empty."""
    each = tensor.element_size()
    most = max(1, SEGMENT_BYTES // each) * each
    segments = max(-(-tensor.nbytes // most), SEGMENTS_PER_RANK * size)
    per_rank = -(-segments // size)
    segment = -(-tensor.nbytes // (per_rank * size))
    return -(-segment // each) * per_rank


def ring_min(parts: Sequence[Tensor]) -> Tensor:
    """Return the element-wise minimum."""
    return torch.stack(tuple(parts)).amin(0)


class Meeting(Protocol):
    """Meeting point of all workers, where they exchange objects."""

    def meet(self, rank: int, brought: Any, make: Callable[[list[Any]], Any]) -> Any:
        """Wait for all workers. Return `make(objects)`, with their `brought` in order of rank."""
        ...


class Call(NamedTuple):
    """A collective that one worker calls."""

    kind: str  # sum | min | gather | gather unlike | all_to_all
    shape: Any  # equal on all workers, except for the sizes of an all_to_all
    tensor: Tensor
    lengths: list[int]  # lengths of the tensors, for gathers


class CollectiveResult(NamedTuple):
    """Result of a collective, shared by all workers."""

    call: tuple[CollectiveCall, ...]  # its collectives, one after another
    value: Any


@dataclass
class SimulatedWorkers(Collectives):
    """One rank's collectives in a simulated run. `ops` records operations for `Layout` to time.

    Compression between collectives takes this thread's processor time times `seconds_per_second`,
    unless `begin` was given its times.
    """

    rank: int
    world_size: int
    circle: Meeting
    costs: Costs
    device: torch.device
    seconds_per_second: float
    ops: list[LaneOp] = field(default_factory=list, init=False)  # since its reader cleared it
    _told: deque[float] = field(default_factory=deque, init=False)  # before each remaining call
    _measures: bool = field(default=False, init=False)
    _measured_from: float | None = field(default=None, init=False)
    # Collectives of lengths to add to the next call; () if they come next, None if there are none.
    _before: tuple[CollectiveCall, ...] | None = field(default=None, init=False)

    def meet(self, brought: Any, make: Callable[[list[Any]], Any]) -> Any:
        """Wait for all workers. Return `make(objects)`, with their `brought` in order of rank."""
        return self.circle.meet(self.rank, brought, make)

    def meet_own(self, brought: Any, make: Callable[[list[Any]], list[Any]]) -> Any:
        """Wait for all workers. Return this rank's item of `make(objects)`."""
        return self.meet(brought, make)[self.rank]

    def begin(self, told_s: Sequence[float] | None = None) -> None:
        """Begin the compression of a bucket. Compression is measured if `told_s` is None.

        `told_s` gives its seconds before the first call, before the second, and so on. Seconds
        without a call are added at the end.
        """
        self._told, self._measures = deque(told_s or ()), told_s is None
        self._go_on()

    def end(self) -> None:
        """End the compression of a bucket, and record its remaining time."""
        self._pause()
        self._add(sum(self._told))
        self._told, self._measures = deque(), False

    def _go_on(self) -> None:
        if self._told:
            self._add(self._told.popleft())
        if self._measures:
            self._measured_from = self._clock()

    def _pause(self) -> None:
        if self._measured_from is not None:
            real_s, self._measured_from = self._clock() - self._measured_from, None
            self._add(real_s * self.seconds_per_second)

    def _add(self, compress_s: float) -> None:
        if compress_s > 0:
            self.ops.append(LaneOp(compress_s))

    def _clock(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return time.thread_time()

    def _exchanged_lengths(self, leaving: list[list[int]]) -> list[list[int]]:
        """Exchange lengths. Record it as part of the next collective, not as a call of its own."""
        self._before = ()
        return super()._exchanged_lengths(leaving)

    def _all_reduce(self, tensor: Tensor, op: str) -> None:
        tensor.copy_(self._meet(op, (tensor.shape, tensor.dtype), tensor))

    def _gather(
        self, mine: Tensor, own: list[int], equal: bool, like: tuple[Tensor, ...]
    ) -> tuple[list[list[int]], list[Tensor]]:
        """Gather every rank's bytes `mine`, uint8 [n], in one meeting of all ranks.

        `own` has the lengths of the tensors that `mine` joins. Return all ranks' lengths and bytes,
        by rank. Unless lengths are known to be `equal`, exchanging them counts as a collective of
        its own. `like` is ignored.
        """
        if equal:
            return self._meet("gather", own, mine, own)
        self._count_ring(LENGTH_BYTES * self.world_size * len(own))
        return self._meet("gather unlike", len(own), mine, own)

    def _all_gather_v(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        return self._meet("gather", sizes, mine)[1]

    def _all_to_all(self, mine: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
        pieces = self._meet("all_to_all", outgoing, mine)[self.rank]
        arrived = [piece.numel() for piece in pieces]
        if arrived != incoming:
            raise ValueError(f"rank {self.rank} expected {incoming} elements, got {arrived}")
        return torch.cat(pieces)

    def _meet(self, kind: str, shape: Any, tensor: Tensor, lengths: list[int] | None = None) -> Any:
        self._pause()
        made = self.meet(Call(kind, shape, tensor, lengths or []), self._make)
        if self._before == ():
            self._before = made.call
            return made.value
        self._called((*(self._before or ()), *made.call))
        self._before = None
        return made.value

    def _called(self, collectives: tuple[CollectiveCall, ...]) -> None:
        """Record `collectives`, and go on with compression after them."""
        self.ops.append(LaneOp(0.0, collectives))
        self._go_on()

    def _make(self, calls: list[Call]) -> CollectiveResult:
        """Combine all workers' calls, in the last worker; ValueError if they differ."""
        first = calls[0]
        for rank, call in enumerate(calls):
            same = call.kind == "all_to_all" or call.shape == first.shape
            if call.kind != first.kind or not same:
                raise ValueError(
                    f"rank 0 called {first.kind} of {first.shape}, rank {rank} {call.kind} of "
                    f"{call.shape}; all workers must call the same"
                )
        if first.kind.startswith("gather"):
            return self._gathered(calls)
        if first.kind == "all_to_all":
            return self._routed(calls)
        total = self._added_up(first.kind, [call.tensor for call in calls])
        return CollectiveResult((("all_reduce", total.nbytes, self.world_size),), total)

    def _added_up(self, op: str, tensors: list[Tensor]) -> Tensor:
        return ring_sum(tensors) if op == "sum" else ring_min(tensors)

    def _gathered(self, calls: list[Call]) -> CollectiveResult:
        lengths, pieces = [call.lengths for call in calls], [call.tensor for call in calls]
        of_pieces = ("all_gather", [piece.nbytes for piece in pieces])
        if calls[0].kind == "gather":
            return CollectiveResult((of_pieces,), (lengths, pieces))
        told = ("all_reduce", LENGTH_BYTES * self.world_size * len(lengths[0]), self.world_size)
        return CollectiveResult((told, of_pieces), (lengths, pieces))

    def _routed(self, calls: list[Call]) -> CollectiveResult:
        each = calls[0].tensor.element_size()
        rows_of = {id(call): [each * count for count in call.shape] for call in calls}
        sizes = [rows_of[id(call)] for call in calls]  # one row if one call represents all
        rows = [call.tensor.split(call.shape) for call in calls]
        return CollectiveResult(
            (("all_to_all", sizes),), list(zip(*rows, strict=True))
        )  # by receiver


class HomogeneousWorkers(SimulatedWorkers):
    """Collectives of one worker for `world_size` equal ones; a sum is a product, rounded once."""

    def meet(self, brought: Any, make: Callable[[list[Any]], Any]) -> Any:
        return make([brought])

    def _make(self, calls: list[Call]) -> CollectiveResult:
        return super()._make(calls * self.world_size)

    def _added_up(self, op: str, tensors: list[Tensor]) -> Tensor:
        sums = op == "sum" and not tensors[0].is_meta  # meta has no values
        return tensors[0] * self.world_size if sums else tensors[0]
