"""Ok-Topk: the top k of the sum over workers, by regions (Li & Hoefler, 2022, Algorithms 1 and 2).

Every worker takes what reaches its local threshold, and sends each part to the worker whose region
it lies in. That one averages, keeps what reaches the global threshold, and sends it to all. About
4 k (P - 1) / P words a worker, whatever P. Thresholds that k entries reach exactly are computed
every `threshold_period` steps (for the global one all averages are gathered), and regions that
divide the local entries evenly every `region_period`. What was sent, but not kept by all, is
`unsent`: meant for `error_feedback: true`. We differ:
- between two computations a threshold follows the count: it is multiplied by its gain after a step
  in which more than k entries reached it, divided after one in which fewer did. That is from the
  authors' code; gains of 1 are the paper. The code's 512 dense steps at the beginning are not here;
- survivors are not balanced over workers before they are gathered: a ring passes all of them
  through every link anyway;
- a local threshold is also computed anew when the density has changed, or when it is zero;
- a global one when it is zero. To a new density it comes by its gain, or at its next computation.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from compressors.base import Bucket, Reduced, Workers
from compressors.magnitude import above, at_least, bits, largest
from compressors.sparse import compensate_, index_dtype, sum_
from compressors.workspace import workspace


@dataclass
class Agreed:
    """What is kept of a bucket: thresholds, float32 [], and bounds of regions, int64 [P + 1]."""

    local: Tensor
    everywhere: Tensor  # the global one
    bounds: Tensor
    density: float = 0.0
    threshold_step: int = 0  # of the last computation
    region_step: int = 0


@dataclass
class OkTopK:
    """Keeps thresholds and regions of every bucket; new ones when DDP lays out its buckets anew."""

    uniform_density: ClassVar[bool] = True
    adds: ClassVar[bool] = True
    checks: ClassVar[bool] = True
    threshold_period: int = 32  # steps between two computations of thresholds, >= 1
    region_period: int = 64  # steps between two divisions into regions, >= 1
    local_gain: float = 1.012  # of the local threshold by step in between, >= 1
    global_gain: float = 1.008  # likewise
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8
    agreed: dict[tuple[str, ...], Agreed] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        for key in ("threshold_period", "region_period", "local_gain", "global_gain"):
            if not 1 <= getattr(self, key) < float("inf"):
                raise ValueError(f"{key} must be >= 1, got {getattr(self, key)}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """About the largest k of the mean of the gradients, [n]; k = max(1, floor(density n)).

        A worker contributes 8 bytes for each local entry outside its region to an all-to-all, and 8
        for each survivor in it to an all-gather (12 with int64). When thresholds are computed all
        are survivors; when regions are, 8 (P + 1) bytes more to an all-reduce. `unsent` is
        `bucket.grad`, zero where this worker's entry survived.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        compensate_(bucket)
        k = max(1, int(density * n))
        state, renew = self._state(bucket)
        if renew or state.density != density or state.local == 0:
            state.local, state.density = _reached_by(grad, k), density
        index = at_least(grad, state.local)
        state.local = _followed(state.local, index.numel(), k, self.local_gain)
        if state.bounds.numel() == 0 or bucket.step - state.region_step >= self.region_period:
            state.bounds, state.region_step = _even_regions(index, n, workers), bucket.step
        values, where = self._region_mean(grad, index, state.bounds, workers)
        if not renew:
            passed = at_least(values, state.everywhere)
            values, where = values[passed], where[passed]
        gathered = workers.all_gather(values, where.to(self._wire_dtype))
        values, where = (torch.cat(column) for column in zip(*gathered, strict=True))
        if renew:
            state.everywhere, state.threshold_step = _reached_by(values, k), bucket.step
            passed = at_least(values, state.everywhere)
            values, where = values[passed], where[passed]
        state.everywhere = _followed(state.everywhere, values.numel(), k, self.global_gain)
        survived = workspace("survived", n, torch.bool, grad.device).zero_()
        survived.index_fill_(0, where.long(), True)
        grad.index_fill_(0, index[survived[index]], 0)
        if bucket.may_clear:
            return Reduced(bucket.room().index_copy_(0, where.long(), values), unsent=grad)
        return Reduced(sum_(bucket.room(), [(values, where)], 1.0), unsent=grad)

    def _state(self, bucket: Bucket) -> tuple[Agreed, bool]:
        """What is known of this bucket, and whether thresholds are due: alike on all workers."""
        state = self.agreed.get(bucket.names)
        if state is None:
            for old in [old for old in self.agreed if set(old) & set(bucket.names)]:
                del self.agreed[old]
            zero = bucket.grad.new_zeros(())
            state = Agreed(zero, zero, torch.empty(0, dtype=torch.int64))
            self.agreed[bucket.names] = state
        aged = bucket.step - state.threshold_step >= self.threshold_period
        return state, aged or bool(state.everywhere == 0)

    def _region_mean(
        self, grad: Tensor, index: Tensor, bounds: Tensor, workers: Workers
    ) -> tuple[Tensor, Tensor]:
        """The mean's entries in this worker's region that are not zero: values and positions."""
        sizes = torch.searchsorted(index, bounds.to(index.device)).diff().tolist()
        values = grad.index_select(0, index).split(sizes)
        wire = index.to(self._wire_dtype).split(sizes)
        first, end = bounds[workers.rank : workers.rank + 2].tolist()
        total = workspace("region", end - first, grad.dtype, grad.device)
        arrived = workers.all_to_all(list(values), list(wire))
        entries = [(theirs, where - first) for theirs, where in arrived]
        sum_(total, entries, 1 / workers.size)
        found = above(total, 0)
        return total[found], found + first


def _reached_by(x: Tensor, k: int) -> Tensor:
    """The k-th largest magnitude of `x`, [n], float32 []; the smallest where n < k, or 0."""
    if x.numel() == 0:
        return x.new_zeros(())
    best = largest(x, min(k, x.numel()))
    return bits(x.index_select(0, best)).min().view(torch.float32)


def _followed(threshold: Tensor, count: int, k: int, gain: float) -> Tensor:
    """`threshold`, moved by a factor `gain` towards one that k entries reach."""
    return threshold * gain if count > k else threshold / gain if count < k else threshold


def _even_regions(index: Tensor, n: int, workers: Workers) -> Tensor:
    """Bounds, int64 [P + 1], the mean of those that divide each worker's `index` evenly."""
    size, count = workers.size, index.numel()
    shares = torch.arange(1, size)
    inner = index.cpu()[shares * count // size] if count else shares * n // size
    bounds = torch.cat([torch.tensor([0]), inner, torch.tensor([n])])
    return workers.all_reduce(bounds.to(index.device), op="sum").cpu() // size
