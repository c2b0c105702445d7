"""Top-k sparsification: each worker sends its k largest entries (Aji & Heafield, 2017).

Exact, by magnitude, k per bucket. Of entries of equal magnitude those of lowest index are sent; NaN
counts as the largest.
"""

from dataclasses import dataclass

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.sparse import average, index_dtype, see_taken_out
from compressors.topk_select import take_largest_


@dataclass
class TopK(Compressor):
    by_shape = True
    sends_positions = True
    adds = True
    checks = True
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of every worker's top k of the gradient, [n], k = max(1, floor(density n)).

        Each worker contributes 8k bytes (12k with int64) to an all-gather. `unsent` is
        `bucket.grad`, the gradient, set to zero where it was sent.
        """
        n = bucket.grad.numel()
        k = max(1, int(density * n))
        index, values = take_largest_(bucket.grad, k, bucket.added, bucket.may_clear)
        see_taken_out(bucket, values, index)
        index = index.to(self._wire_dtype)
        mean = average(values, index, n, workers, bucket.room(), bucket.may_clear)
        return Reduced(mean, unsent=bucket.grad)
