"""No compression: the mean of the whole gradients, the baseline of every comparison."""

from dataclasses import dataclass
from typing import ClassVar

from compressors.base import Bucket, Reduced, Workers


@dataclass
class Dense:
    by_shape: ClassVar[bool] = True
    uniform_density: ClassVar[bool] = False  # whatever was chosen, the density is 1
    has_level: ClassVar[bool] = False

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of `bucket.grad`, [n], by one all-reduce of 4n bytes; nothing is left unsent."""
        return Reduced(workers.all_reduce(bucket.grad), unsent=None)
