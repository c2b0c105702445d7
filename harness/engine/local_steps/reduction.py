"""A worker's side of the exchange of fragments, which is that of gradients but for what it counts.

A compressor sees as the number of an exchange that of the round, and every bucket of the model by a
number of its own: what alternates or is kept by either goes on from one round to the next.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from compressors.base import Workers
from harness.engine.exchange.reduction import BucketBuffers, Reduction


@dataclass
class OuterReduction(Reduction):
    """Reduction of an outer step: averages are exact when `dense`, and always of statistics."""

    statistics: Container[str] = ()  # names
    dense: bool = field(default=False, init=False)
    round: int = field(default=0, init=False)
    first_bucket: int = field(default=0, init=False)  # number in the model of an exchange's first

    def reduce(
        self, step: int, index: int, laid: BucketBuffers, workers: Workers | None = None
    ) -> None:
        if self.dense or laid.names[0] in self.statistics:
            (workers or self.workers).all_reduce(laid.buffer)
            return
        super().reduce(self.round, self.first_bucket + index, laid, workers)
