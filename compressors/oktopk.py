"""Ok-Topk: the top k of the sum over workers, by regions (Li & Hoefler, 2022, Algorithms 1 and 2).

Every worker takes the entries that reach its local threshold. It sends each to the worker whose
region has its position. The owner of a region averages what it receives, keeps the entries that
reach the global threshold, and sends them to all. That is about 4 k (P - 1) / P words a worker.
Entries that were sent but not kept by all stay in `unsent`, so use `error_feedback: true`.

Every `threshold_period` steps, thresholds are computed that k entries reach exactly. For the global
one, all averages are gathered. Every `region_period` steps, regions are computed that divide the
local entries evenly. We differ:
- between two computations a threshold follows the count: it is multiplied by its gain if more than
  k entries reached it, and divided if fewer did. This is from the authors' code; gains of 1 are the
  paper. We leave out the code's 512 dense steps at the beginning;
- entries that survive are not balanced over workers before they are gathered, because a ring passes
  all of them through every link anyway;
- a local threshold is also computed when the density has changed, or when it is zero;
- a global threshold is also computed when it is zero. It reaches a new density by its gain, or at
  the next computation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Size, Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import add_and_find_reaching, scatter
from compressors.sparse import add_at_, index_dtype, sum_, take_out_
from compressors.topk_select import Entries, add_reaching_, at_least, reached_by
from compressors.workspace import held, workspace


@dataclass
class Agreed:
    """State kept per bucket: thresholds, float32 [], and bounds of regions, int64 [P + 1]."""

    local: Tensor
    everywhere: Tensor  # the global one
    bounds: Tensor
    density: float = 0.0
    threshold_step: int = 0  # of the last computation
    region_step: int = 0


@dataclass
class OkTopK(Compressor):
    """Compressor that keeps thresholds and regions per bucket until DDP rebuilds its buckets."""

    uniform_density = True
    pushes = False
    waits = True
    threshold_period: int = 32  # steps between two computations of thresholds, >= 1
    region_period: int = 64  # steps between two divisions into regions, >= 1
    local_gain: float = 1.012  # of the local threshold by step in between, >= 1
    global_gain: float = 1.008  # the same for the global threshold
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8
    agreed: dict[tuple[str, ...], Agreed] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        for key in ("threshold_period", "region_period", "local_gain", "global_gain"):
            if not 1 <= getattr(self, key) < float("inf"):
                raise ValueError(f"{key} must be >= 1, got {getattr(self, key)}")

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        if field == "bounds":  # empty before the first are computed
            count = workers.world_size + 1 if kept.numel() else 0
            return torch.empty(count, dtype=torch.int64, device="meta")
        return torch.empty((), device="meta")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return about the k largest entries of the mean, [n], k = max(1, floor(density n)).

        A worker contributes 8 bytes for each local entry outside its region to an all-to-all, and 8
        for each survivor in it to an all-gather (12 with int64). When thresholds are computed, all
        entries survive. When regions are computed, 8 (P + 1) bytes more go to an all-reduce.
        `unsent` is `bucket.grad`, zeroed where this worker's entry survived.
        """
        n, k = bucket.n, max(1, int(density * bucket.n))
        state, renew = self._state(bucket)
        local = self._local(bucket, state, density, k, renew)
        if state.bounds.numel() == 0 or bucket.step - state.region_step >= self.region_period:
            state.bounds, state.region_step = _even_regions(local.index, n, workers), bucket.step
        least = torch.zeros_like(state.everywhere) if renew else state.everywhere
        survivors = workers.all_gather(*self._region_mean(local, state.bounds, least, workers))
        if renew:
            values = torch.cat([part for part, _ in survivors])
            state.everywhere, state.threshold_step = reached_by(values, k), bucket.step
            survivors = [_reaching(values, where, state.everywhere) for values, where in survivors]
        count = sum(part.numel() for part, _ in survivors)
        state.everywhere = _followed(state.everywhere, count, k, self.global_gain)
        mean = scatter(bucket.buffers, survivors)
        if bucket.needs_residual:
            _erase_survivors_(bucket.grad, local, mean)
        return Reduced(mean, unsent=bucket.grad)

    def _local(self, bucket: Bucket, state: Agreed, density: float, k: int, renew: bool) -> Entries:
        """Return this worker's entries that reach its threshold, which is computed first if due."""
        if renew or state.density != density or state.local == 0:
            state.local, state.density = reached_by(bucket.grad, k), density
        found = add_and_find_reaching(bucket.buffers, state.local)
        state.local = _followed(state.local, found.values.numel(), k, self.local_gain)
        return Entries(held("local positions", found.index), held("local values", found.values))

    def _state(self, bucket: Bucket) -> tuple[Agreed, bool]:
        """Return a bucket's state, and whether its thresholds are due; equal on all workers."""
        state = self.agreed.get(bucket.names)
        if state is None:
            for old in [old for old in self.agreed if set(old) & set(bucket.names)]:
                del self.agreed[old]
            zero = torch.zeros((), device=bucket.device)
            state = Agreed(zero, zero, torch.empty(0, dtype=torch.int64))
            self.agreed[bucket.names] = state
        aged = bucket.step - state.threshold_step >= self.threshold_period
        return state, aged or bool(state.everywhere == 0)

    def _region_mean(
        self, local: Entries, bounds: Tensor, least: Tensor, workers: Workers
    ) -> tuple[Tensor, Tensor]:
        """Return values and positions of the mean in this worker's region that reach `least`.

        In messages, positions count from the start of the region.
        """
        sizes = torch.searchsorted(local.index, bounds.to(local.index)).diff().tolist()
        wire = list(held("wire", local.index.to(self._wire_dtype)).split(sizes))
        for part, begin in zip(wire, bounds[:-1].tolist(), strict=True):
            part.sub_(begin)
        arrived = workers.all_to_all(list(local.values.split(sizes)), wire)
        first, end = bounds[workers.rank : workers.rank + 2].tolist()
        total = workspace("region", end - first, local.values.dtype, local.values.device)
        found = add_reaching_(sum_(total, arrived, 1 / workers.world_size), least)
        where = held("region positions", found.index.to(self._wire_dtype)).add_(first)
        return held("region values", found.values), where


def _reaching(values: Tensor, where: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    passed = at_least(values, threshold)
    return values[passed], where[passed]


def _erase_survivors_(grad: Tensor, local: Entries, mean: Tensor) -> None:
    """Zero `grad`, [n], where it has a `local` entry and `mean` is not zero."""
    kept = workspace("survived", local.values.numel(), grad.dtype, grad.device)
    sent = take_out_(mean, local.index, False, kept).ne_(0).mul_(local.values)
    add_at_(grad, local.index, sent, -1.0)


def _followed(threshold: Tensor, count: int, k: int, gain: float) -> Tensor:
    """Return `threshold`, float32 [], adjusted so that about `k` entries reach it next time.

    It is multiplied by `gain` if more than `k` entries (`count`) reached it, or divided if fewer.
    """
    return threshold * gain if count > k else threshold / gain if count < k else threshold


def _even_regions(index: Tensor, n: int, workers: Workers) -> Tensor:
    """Return bounds, int64 [P + 1], averaged over workers, that split `index` evenly."""
    size, count = workers.world_size, index.numel()
    shares = torch.arange(1, size)
    inner = index.cpu()[shares * count // size] if count else shares * n // size
    bounds = torch.cat([torch.tensor([0]), inner, torch.tensor([n])])
    return workers.all_reduce(bounds.to(index.device), op="sum").cpu() // size
