"""MSTopK: exactly k entries, found by counts above trial thresholds (Shi, 2021).

A threshold is bisected between the mean and the largest magnitude. Two thresholds remain: the
lowest that at most k entries reach, and the highest that more than k reach. All entries above the
first are sent. A run of consecutive entries between the two fills up to k.

It is ACP-SGD's baseline (Zhang et al., 2023, who only say that it searches by halves). We differ
from the usual recipe:
- we bisect the bits of magnitudes, which order as the floats do. With heavy tails, bisecting values
  spends all rounds in ranges without entries. After 30 rounds the top k is exact to the last bit,
  and of equal entries a random run is sent;
- if fewer than k entries reach the mean, the search starts from zero;
- counts only read the few entries above a bound from a sample, which more than k reach.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import scatter_mean
from compressors.reductions import mean_magnitude
from compressors.rng import generator
from compressors.sparse import index_dtype, take_out_
from compressors.topk_select import MAGNITUDE, above, add_reaching_, bits, more_than
from compressors.workspace import held, workspace


@dataclass
class MSTopK(Compressor):
    rounds: int = 30  # of bisection; fewer leave more to the random run, >= 0
    seed: int = 0  # where the run starts follows from (seed, step, bucket, rank)
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        if self.rounds < 0:
            raise ValueError(f"rounds must be >= 0, got {self.rounds}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean, [n], of k entries of every gradient, k = max(1, floor(density n)).

        Each worker contributes 8k bytes (12k with int64) to an all-gather. `unsent` is
        `bucket.grad`, zeroed where it was sent.
        """
        grad, k = bucket.grad, max(1, int(density * bucket.n))
        source = generator(self.seed, bucket.step, bucket.index, workers.rank)
        index = self._select(grad, k, source)
        values = take_out_(grad, index, out=workspace("values", k, grad.dtype, grad.device))
        mean = scatter_mean(bucket.buffers, values, index.to(self._wire_dtype), workers)
        return Reduced(mean, unsent=grad)

    def _select(self, grad: Tensor, k: int, source: torch.Generator) -> Tensor:
        """Return positions, [k], of k entries of `grad`, [n], by counts above a known low bound."""
        found, bound = more_than(grad, k)
        where, values = held("candidates", found.index), held("magnitudes", found.values)
        keys = values.view(torch.int32).bitwise_and_(MAGNITUDE)
        mean = int(bits(torch.tensor(mean_magnitude(grad))))
        low = mean if mean <= bound or _count(keys, mean) >= k else 0
        high, reached = int(keys.max()) + 1 if keys.numel() else 1, 0  # entries at `high` or above
        for _ in range(self.rounds):
            if reached == k or high - low <= 1:
                break
            middle = (low + high) // 2
            count = _count(keys, middle) if middle > bound else k + 1
            if count <= k:
                reached, high = count, middle
            else:
                low = middle
        missing = k - reached
        if missing and low <= bound:
            where = above(grad, low - 1)
            values = bits(grad.index_select(0, where)).view(torch.float32)
        if not missing:
            least = torch.tensor(high, dtype=torch.int32).view(torch.float32)
            passed = add_reaching_(values, least)
            certain = workspace("certain", k, where.dtype, where.device)
            return torch.index_select(where, 0, passed.index, out=certain)
        keys = bits(values)
        spare = where[(keys >= low) & (keys < high)]
        start = int(torch.randint(spare.numel() - missing + 1, (1,), generator=source))
        return torch.cat([where[keys >= high], spare[start : start + missing]])


def _count(keys: Tensor, least: int) -> int:
    """Count the keys that are `least` or more."""
    reached = workspace("reached", keys.numel(), torch.bool, keys.device)
    return int(torch.ge(keys, least, out=reached).count_nonzero())
