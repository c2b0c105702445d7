"""Random-k sparsification: each worker sends k entries drawn without replacement (Stich, 2018).

The values are sent as they are, not scaled by n/k: the mean is biased towards zero, and only error
feedback makes up for it, as in DC2 (Abdelmoniem & Canini, 2021), which draws per worker.
"""

from dataclasses import dataclass, field
from math import isfinite

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.rng import positions
from compressors.sparse import (
    add_take_out_,
    average,
    index_dtype,
    see_taken_out,
    sum_,
)
from compressors.workspace import workspace


@dataclass
class RandomK(Compressor):
    by_shape = True
    adds = True
    checks = True
    seed: int = 0  # the positions follow from (seed, step, bucket), and the rank if not shared
    shared: bool = True  # all workers send the same positions: only values travel
    index_dtype: str = "int32"  # of positions on the wire, when not shared
    uniform_density: bool = field(init=False)

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        self.uniform_density = self.shared

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of every worker's random k of the gradient, [n], k = max(1, floor(density n)).

        Shared: one all-reduce of 4k bytes. Otherwise each worker contributes 8k bytes (12k with
        int64) to an all-gather. `unsent` is `bucket.grad`, the gradient, zero where it was sent.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        k = max(1, int(density * n))
        key = (self.seed, bucket.step, bucket.index)
        own = () if self.shared else (workers.rank,)
        index = positions(n, k, key + own).to(grad.device)
        values = workspace("values", k, grad.dtype, grad.device)
        clear, erase = bucket.may_clear, bucket.is_kept
        seen = add_take_out_(grad, bucket.added, clear, index, erase, values)[1]
        if not isfinite(seen):
            see_taken_out(bucket, values, index)
            bucket.examine()
        if not self.shared:
            index = index.to(self._wire_dtype)
            mean = average(values, index, n, workers, bucket.room(), bucket.may_clear)
            return Reduced(mean, unsent=grad)
        values, mean = workers.all_reduce(values), bucket.room()
        return Reduced(sum_(mean, [(values, index)], 1.0, bucket.may_clear), unsent=grad)
