"""Training data, number of steps and learning rate of a rank."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple

from harness.config.run import Run
from harness.engine.training.rank_context import RankContext
from harness.engine.training.resume import Resumed
from harness.workloads.data.base import Batch, DataSet
from harness.workloads.data.loader import Batches, shard


class Course(NamedTuple):
    """Data, length and learning rate of one rank's training. A replay has no data."""

    samples: int  # of this rank in a step
    batches: Callable[[int], Iterator[Any]]  # iterator from the given step on
    test_set: Callable[[], Iterator[Batch]]  # iterator over this rank's share
    steps: int
    learning_rate: Callable[[int], float]  # by step
    begin: Resumed | None = None
    period: int | None = None  # steps per epoch

    @property
    def first(self) -> int:
        """The first step: 0, or the step of the checkpoint that training resumes from."""
        return self.begin.manifest.step if self.begin else 0


def course_of(run: Run, place: RankContext, number: int, size: int) -> Course:
    """Return the course of data shard `number` of `size`."""
    samples, data, rate = run.accumulate * run.batch_size, place.data, run.optimizer.rate
    if run.emulation.is_replay:
        return without_data(samples, run.steps)
    batches = Batches(data.train(), samples, number, size, run.seed)
    steps = run.steps
    return Course(
        samples=samples,
        batches=lambda step: iter(replace(batches, first=step)),
        test_set=tested(data, number, size),
        steps=steps,
        learning_rate=lambda step: rate(step, steps),
        begin=place.begin,
        period=batches.steps_per_epoch,
    )


def without_data(samples: int, steps: int) -> Course:
    """Return the course of a replay, which counts samples but has no data."""
    return Course(samples, repeat, lambda: iter(()), steps, learning_rate=lambda step: 0.0)


def tested(data: DataSet, number: int, size: int) -> Callable[[], Iterator[Batch]]:
    """Return a function that iterates over shard `number` of `size` of the test set."""
    share = cache(lambda: shard(data.test(), number, size))
    return lambda: iter(share())
