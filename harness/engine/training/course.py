"""What a rank trains on, for how long, and at which rate."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from harness.config.run import Run
from harness.engine.training.resume import Resumed
from harness.workloads.data.base import DataSet
from harness.workloads.data.loader import Batches, shard


class Course(NamedTuple):
    """Data, length and learning rate of a rank's training."""

    batches: Batches
    test_set: Any  # its share: iterator of (inputs, labels)
    steps: int
    begin: Resumed | None
    learning_rate: Callable[[int], float]

    @property
    def first(self) -> int:
        """Step."""
        return first_of(self.begin)


def first_of(begin: Resumed | None) -> int:
    """The step that a run begins with."""
    return begin.manifest.step if begin else 0


def course_of(
    run: Run, data: DataSet, of_a_step: int, number: int, size: int, begin: Resumed | None
) -> Course:
    """The course of part `number` of `size`, which takes `of_a_step` samples in a step."""
    first = first_of(begin)
    batches = Batches(data.train(), of_a_step, number, size, run.seed, first)
    steps = run.total_steps(batches.steps_per_epoch)
    if steps <= first:
        raise ValueError(f"resume_from has done {first} steps, and epochs make only {steps}")
    rate, test_set = run.optimizer.rate, cache(lambda: shard(data.test(), number, size))
    return Course(batches, lambda: iter(test_set()), steps, begin, lambda step: rate(step, steps))
