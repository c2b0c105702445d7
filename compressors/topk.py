"""Top-k sparsification: each worker sends its k largest entries (Aji & Heafield, 2017).

Exact, by magnitude, k per bucket. Among entries of equal magnitude the lowest indices are sent. NaN
counts as the largest.
"""

from dataclasses import dataclass

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import add_and_take_largest, scatter_mean
from compressors.sparse import index_dtype


@dataclass
class TopK(Compressor):
    by_shape = True
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of every worker's top k entries, [n], k = max(1, floor(density n)).

        Each worker contributes 8k bytes (12k with int64) to an all-gather. `unsent` is
        `bucket.grad`, zeroed where it was sent.
        """
        k = max(1, int(density * bucket.n))
        index, values = add_and_take_largest(bucket.buffers, k)
        mean = scatter_mean(bucket.buffers, values, index.to(self._wire_dtype), workers)
        return Reduced(mean, unsent=bucket.grad)
