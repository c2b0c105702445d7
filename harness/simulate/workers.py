"""The other workers in virtual time: collectives meet in one process and cost what costs say."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.exchange.collectives import Collectives
from harness.simulate.costs import Costs
from harness.simulate.sums import least, ring_sum
from harness.simulate.turns import Turns

LENGTH_BYTES = 8  # of what tells a tensor's length


class Call(NamedTuple):
    """A collective that one worker has reached."""

    kind: str  # sum | min | gather | gather unlike | swap
    shape: Any  # equal on all workers, except for the sizes of a swap
    now_s: float
    tensor: Tensor
    lengths: list[int]  # of the tensors in a gathered one


class Part(NamedTuple):
    """A collective of `costs`."""

    end_s: float  # for who is last
    early_s: Sequence[float]  # before that each worker is done


class Made(NamedTuple):
    """What came of it, for all."""

    parts: list[Part]  # one after the other
    value: Any


class Act(NamedTuple):
    """Compression (None) of so many seconds, or a collective of `costs` and what it was asked."""

    collective: str | None
    asked: tuple[Any, ...]


@dataclass
class SimulatedWorkers(Collectives):
    """One worker's view. Its `now_s` is the emulated time that its communication has come to.

    Between collectives `now_s` goes on by the processor time of this thread, times
    `seconds_per_second`, except where `charge` has been told how long compression takes.
    """

    rank: int
    size: int
    turns: Turns
    costs: Costs
    device: torch.device
    seconds_per_second: float
    now_s: float = field(default=0.0, init=False)
    compress_s: float = field(default=0.0, init=False)
    intervals: list[tuple[float, float]] = field(default_factory=list, init=False)
    compressing: list[tuple[float, float]] = field(default_factory=list, init=False)
    acts: list[Act] = field(default_factory=list, init=False)  # since somebody cleared it
    _measured_from: float | None = field(default=None, init=False)

    def open(self, exchange: int) -> None:
        """An exchange begins, which every worker says before any of its collectives."""
        self.costs.noise.begin(exchange)

    def begin(self, time_s: float) -> None:
        """Go on at `time_s`, unless it is later already; from now on time is measured."""
        self.now_s = max(self.now_s, time_s)
        self._measured_from = self._clock()

    def pause(self) -> None:
        """Add what was measured since."""
        if self._measured_from is not None:
            self.charge((self._clock() - self._measured_from) * self.seconds_per_second)
            self._measured_from = None

    def charge(self, compress_s: float) -> None:
        self.acts.append(Act(None, (compress_s,)))
        begin_s, self.now_s = self.now_s, self.now_s + compress_s
        self.compress_s += compress_s
        if compress_s > 0:
            self.compressing.append((begin_s, self.now_s))

    def again(self, time_s: float, acts: list[Act]) -> None:
        """What `acts` tells, from `time_s` on, without any tensor; nobody is waited for."""
        self.now_s = max(self.now_s, time_s)
        for act in acts:
            if act.collective is None:
                self.charge(*act.asked)
            else:
                self._went_on([self._cost(act.collective, self.now_s, *act.asked)])
        self._measured_from = None

    def _clock(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return time.thread_time()

    def _add_up(self, tensor: Tensor, op: str) -> None:
        tensor.copy_(self._meet(op, (tensor.shape, tensor.dtype), tensor))

    def _gather(
        self, mine: Tensor, own: list[int], equal: bool, like: tuple[Tensor, ...]
    ) -> tuple[list[list[int]], list[Tensor]]:
        """At one meeting, also where two collectives are counted: lengths, then pieces."""
        if equal:
            return self._meet("gather", own, mine, own)
        self._count_ring(LENGTH_BYTES * self.size * len(own))
        return self._meet("gather unlike", len(own), mine, own)

    def _pass_round(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        return self._meet("gather", sizes, mine)[1]

    def _swap(self, mine: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
        pieces = self._meet("swap", outgoing, mine)[self.rank]
        arrived = [piece.numel() for piece in pieces]
        if arrived != incoming:
            raise ValueError(f"rank {self.rank} expected {incoming} elements, got {arrived}")
        return torch.cat(pieces)

    def _meet(self, kind: str, shape: Any, tensor: Tensor, lengths: list[int] | None = None) -> Any:
        self.pause()
        call = Call(kind, shape, self.now_s, tensor, lengths or [])
        made = self.turns.meet(self.rank, call, self._make)
        self._went_on([end_s - early_s[self.rank] for end_s, early_s in made.parts])
        return made.value

    def _went_on(self, ends_s: list[float]) -> None:
        for end_s in ends_s:
            begin_s, self.now_s = self.now_s, max(self.now_s, end_s)
            self.intervals.append((begin_s, self.now_s))
        self._measured_from = self._clock()

    def _make(self, calls: list[Call]) -> Made:
        """Done once, by whoever came last."""
        first, start_s = calls[0], max(call.now_s for call in calls)
        for rank, call in enumerate(calls):
            same = call.kind == "swap" or call.shape == first.shape
            if call.kind != first.kind or not same:
                raise ValueError(
                    f"rank 0 called {first.kind} of {first.shape}, rank {rank} {call.kind} of "
                    f"{call.shape}; all workers must call the same"
                )
        if first.kind.startswith("gather"):
            return self._gathered(start_s, calls)
        if first.kind == "swap":
            return self._swapped_all(start_s, calls)
        total = self._added_up(first.kind, [call.tensor for call in calls])
        return Made([self._part("all_reduce", start_s, total.nbytes, self.size)], total)

    def _part(self, collective: str, start_s: float, *asked: Any) -> Part:
        end_s = self._cost(collective, start_s, *asked)
        return Part(end_s, self._early_s(start_s, end_s, collective, *asked))

    def _early_s(self, start_s: float, end_s: float, *asked: Any) -> Sequence[float]:
        return self.costs.early_s(start_s, end_s, *asked).tolist()

    def _cost(self, collective: str, start_s: float, *asked: Any) -> float:
        """When a collective that starts at `start_s` ends."""
        self.acts.append(Act(collective, asked))
        return getattr(self.costs, collective)(start_s, *asked)

    def _added_up(self, op: str, tensors: list[Tensor]) -> Tensor:
        return ring_sum(tensors) if op == "sum" else least(tensors)

    def _gathered(self, start_s: float, calls: list[Call]) -> Made:
        lengths = [call.lengths for call in calls]
        parts = []
        if calls[0].kind == "gather unlike":
            nbytes = LENGTH_BYTES * self.size * len(lengths[0])
            parts.append(self._part("all_reduce", start_s, nbytes, self.size))
            start_s = parts[0].end_s
        pieces = [call.tensor for call in calls]
        sizes = [piece.nbytes for piece in pieces]
        return Made([*parts, self._part("all_gather", start_s, sizes)], (lengths, pieces))

    def _swapped_all(self, start_s: float, calls: list[Call]) -> Made:
        each = calls[0].tensor.element_size()
        rows_of = {id(call): [each * count for count in call.shape] for call in calls}
        sizes = [rows_of[id(call)] for call in calls]  # one row, where one call stands for all
        rows = [call.tensor.split(call.shape) for call in calls]
        part = self._part("all_to_all", start_s, sizes)
        return Made([part], list(zip(*rows, strict=True)))  # by receiver


class Alike(SimulatedWorkers):
    """One worker that stands for `size` of them, who bring what it brings, when it does.

    Sums are products then, rounded once.
    """

    def _meet(self, kind: str, shape: Any, tensor: Tensor, lengths: list[int] | None = None) -> Any:
        self.pause()
        call = Call(kind, shape, self.now_s, tensor, lengths or [])
        made = self._make([call] * self.size)
        self._went_on([part.end_s for part in made.parts])
        return made.value

    def _early_s(self, start_s: float, end_s: float, *asked: Any) -> Sequence[float]:
        return ()

    def _added_up(self, op: str, tensors: list[Tensor]) -> Tensor:
        return tensors[0] * self.size if op == "sum" else tensors[0]
