"""A worker's reduction of fragments, which differs from that of gradients in its counters.

A compressor sees the round's number as that of the exchange, and a number of its own for every
bucket of the model. So what it alternates or keeps by number continues from one round to the next.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from compressors.base import Workers
from harness.engine.exchange.reduction import BucketBuffers, Reduction


@dataclass
class OuterReduction(Reduction):
    """Reduction of an outer step. Averages are exact if `dense`, and always for statistics."""

    statistics: Container[str] = ()  # names
    dense: bool = field(default=False, init=False)
    round: int = field(default=0, init=False)
    first_bucket: int = field(default=0, init=False)  # number in the model of an exchange's first

    def reduce_bucket(
        self, step: int, index: int, laid: BucketBuffers, workers: Workers | None = None
    ) -> None:
        if self.dense or laid.names[0] in self.statistics:
            (workers or self.workers).all_reduce(laid.buffer)
            return
        super().reduce_bucket(self.round, self.first_bucket + index, laid, workers)
