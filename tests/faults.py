"""Parts that fail on purpose; named by `_target_` in tests of how failures are shown."""

import os
from dataclasses import dataclass

from compressors.base import Bucket, Reduced, Workers


@dataclass
class BreaksAtStep:
    """Dense reduction that raises on one rank at one step."""

    step: int = 3
    rank: int = 1
    uniform_density: bool = True

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        if bucket.step == self.step and workers.rank == self.rank:
            raise ArithmeticError("this compressor breaks on purpose")
        return Reduced(workers.all_reduce(bucket.grad), None)


@dataclass
class DiffersByRank:
    """Every rank keeps its own gradient: the weights drift apart."""

    uniform_density: bool = True

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        workers.all_reduce(bucket.grad.clone())
        return Reduced(bucket.grad.clone().add_(workers.rank), None)


@dataclass
class DiesWhenLeaving:
    """Dense reduction; rank 1's process dies when its exchange is taken apart."""

    uniform_density: bool = True

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        return Reduced(workers.all_reduce(bucket.grad), None)

    def __del__(self) -> None:
        if os.environ.get("RANK") == "1":
            os._exit(7)
