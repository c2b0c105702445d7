"""Parts that fail on purpose; named by `_target_` in tests of how failures are shown."""

import os
import time
from dataclasses import dataclass

from compressors.base import Bucket, Compressor, Reduced, Workers
from tests.launching import STEPS_BEFORE_GATE


@dataclass
class BreaksAtStep(Compressor):
    """Dense reduction that raises on one rank at one step."""

    step: int = 3
    rank: int = 1
    uniform_density = True

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        if bucket.step == self.step and workers.rank == self.rank:
            raise ArithmeticError("this compressor breaks on purpose")
        return Reduced(workers.all_reduce(bucket.grad), None)


@dataclass
class ReturnsShort(Compressor):
    """Dense reduction that returns seven elements of the mean, from step `since` on."""

    since: int = 1
    uniform_density = True

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        mean = workers.all_reduce(bucket.grad)
        return Reduced(mean if bucket.step < self.since else mean[:7], None)


@dataclass
class AddsUnlike(Compressor):
    """Dense reduction that adds tensors whose shapes differ, which torch refuses."""

    uniform_density = True

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        return Reduced(workers.all_reduce(bucket.grad) + bucket.grad[:2], None)


@dataclass
class DiffersByRank(Compressor):
    """Every rank keeps its own gradient: the weights drift apart."""

    uniform_density = True

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        workers.all_reduce(bucket.grad.clone())
        return Reduced(bucket.grad.clone().add_(workers.rank), None)


@dataclass
class DiesWhenLeaving(Compressor):
    """Dense reduction; rank 1's process dies when its exchange is taken apart."""

    uniform_density = True

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        return Reduced(workers.all_reduce(bucket.grad), None)

    def __del__(self) -> None:
        if os.environ.get("RANK") == "1":
            os._exit(7)


@dataclass
class WaitsAtGate(Compressor):
    """Dense reduction; waits for as long as the file $GATE exists, at a step or before the first.

    So a fault meets a run under way, however fast or busy the machine is. Only the rank $GATE_RANK
    waits, where that is set.
    """

    uniform_density = True

    def __post_init__(self) -> None:
        if "RANK" in os.environ and os.environ.get("GATE_AT") == "start":
            _wait_at_gate()

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        if bucket.step == STEPS_BEFORE_GATE:
            _wait_at_gate()
        return Reduced(workers.all_reduce(bucket.grad), None)


def _wait_at_gate() -> None:
    rank = os.environ.get("RANK")
    if rank is None or os.environ.get("GATE_RANK", rank) != rank:  # no rank: it is a prediction
        return
    while os.path.exists(os.environ.get("GATE", "")):
        time.sleep(0.02)
