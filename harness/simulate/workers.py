"""The other workers in virtual time: collectives meet in one process and cost what costs say."""

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.collectives import Collectives
from harness.simulate.costs import Costs
from harness.simulate.sums import least, ring_sum
from harness.simulate.turns import Turns


class Call(NamedTuple):
    """A collective that one worker has reached."""

    kind: str  # sum | min | gather | swap
    shape: Any  # equal on all workers, except for the sizes of a swap
    now_s: float
    tensor: Tensor


class Made(NamedTuple):
    """What came of it, for all."""

    start_s: float  # when the last had reached it
    end_s: float
    value: Any


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
    _measured_from: float | None = field(default=None, init=False)

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
        self.now_s += compress_s
        self.compress_s += compress_s

    def _clock(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return time.thread_time()

    def _add_up(self, tensor: Tensor, op: str) -> None:
        tensor.copy_(self._meet(Call(op, (tensor.shape, tensor.dtype), 0.0, tensor)))

    def _pass_round(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        return list(self._meet(Call("gather", sizes, 0.0, mine)))

    def _swap(self, mine: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
        pieces = self._meet(Call("swap", outgoing, 0.0, mine))[self.rank]
        arrived = [piece.numel() for piece in pieces]
        if arrived != incoming:
            raise ValueError(f"rank {self.rank} expected {incoming} elements, got {arrived}")
        return torch.cat(pieces)

    def _meet(self, call: Call) -> Any:
        self.pause()
        arrived_s = self.now_s
        made: Made = self.turns.meet(self.rank, call._replace(now_s=arrived_s), self._make)
        self.now_s = made.end_s
        self.intervals.append((arrived_s, made.end_s))
        self._measured_from = self._clock()
        return made.value

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
        tensors = [call.tensor for call in calls]
        if first.kind == "gather":
            return Made(start_s, self.costs.all_gather(start_s, first.shape), tensors)
        if first.kind == "swap":
            each = tensors[0].element_size()
            sizes = [[each * count for count in call.shape] for call in calls]
            rows = [call.tensor.split(call.shape) for call in calls]
            return Made(
                start_s, self.costs.all_to_all(start_s, sizes), list(zip(*rows, strict=True))
            )
        total = ring_sum(tensors) if first.kind == "sum" else least(tensors)
        return Made(start_s, self.costs.all_reduce(start_s, total.nbytes, self.size), total)
