"""No compression: the mean of the whole gradients, the baseline of every comparison."""

from dataclasses import dataclass

from compressors.base import Bucket, Compressor, Reduced, Workers


@dataclass
class Dense(Compressor):
    by_shape = True
    has_level = False

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of `bucket.grad`, [n], by one all-reduce of 4n bytes."""
        return Reduced(workers.all_reduce(bucket.grad), unsent=None)
