"""Random-k sparsification: each worker sends k entries drawn without replacement (Stich, 2018).

Values are sent as they are, not scaled by n/k. The mean is biased towards zero, and only error
feedback compensates, as in DC2 (Abdelmoniem & Canini, 2021), which draws per worker.
"""

from dataclasses import dataclass, field

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import add_and_take, scatter, scatter_mean
from compressors.rng import positions
from compressors.sparse import index_dtype


@dataclass
class RandomK(Compressor):
    by_shape = True
    seed: int = 0  # the positions follow from (seed, step, bucket), and the rank if not shared
    shared: bool = True  # all workers send the same positions: only values travel
    index_dtype: str = "int32"  # of positions on the wire, when not shared
    uniform_density: bool = field(init=False)

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        self.uniform_density = self.shared

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of every worker's random k entries, [n], k = max(1, floor(density n)).

        With `shared`, one all-reduce of 4k bytes. Otherwise each worker contributes 8k bytes (12k
        with int64) to an all-gather. `unsent` is `bucket.grad`, zeroed where it was sent.
        """
        k = max(1, int(density * bucket.n))
        key = (self.seed, bucket.step, bucket.index)
        own = () if self.shared else (workers.rank,)
        index = positions(bucket.n, k, key + own).to(bucket.device)
        values = add_and_take(bucket.buffers, index)
        if self.shared:
            mean = scatter(bucket.buffers, [(workers.all_reduce(values), index)])
        else:
            mean = scatter_mean(bucket.buffers, values, index.to(self._wire_dtype), workers)
        return Reduced(mean, unsent=bucket.grad)
