"""COVAP: send each part of the gradient whole, once in I steps (Meng et al., 2023).

Coarse-grained filter: unit t is sent at step s if (t + s) mod I = 0. The mean of other units is
zero. Units are DDP's buckets in the order in which they become ready. With m the median size, a
bucket of n elements is cut into min(I, floor(n / m)) even slices, each a unit. Workers need not
agree on anything, and the only work is an addition. The residual e is added as c e, with a
coefficient c that rises to 1, so use `error_feedback: true`. The controller sets I to the ratio of
communication to computation (`controllers.covap`). The paper leaves open:
- c. Its values are those of the authors' code (`init`, `ascend_range`, `ascend_steps`).
- The median. It is over all buckets, as the rule says.
- How a bucket is sliced. We slice contiguously, so that a unit is sent from where it lies.
- The first exchange, when not all buckets are known, and an exchange with changed buckets. From the
  first bucket that differs from the previous exchange, every bucket is one unit, numbered by its
  place. So from the second exchange of a layout, at a constant I, each unit is sent exactly once in
  any I steps.
"""

from dataclasses import dataclass, field
from math import ceil
from statistics import median

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import add_scaled

TOLERANCE = 1e-9  # relative: 1 / (1 / I), averaged over workers, is I
SHORT = 8  # the largest I that begins with the first of these, (init, ascend_steps)
SCHEDULES = (0.5, 50), (0.2, 100)


@dataclass
class COVAP(Compressor):
    """Compressor that sends each unit of the gradient whole, once in I steps, with error feedback.

    It cuts units by the last exchange's bucket sizes. Raise ValueError for settings out of range.
    """

    by_shape = True
    uniform_density = True
    is_mean = False  # of gradient and residual: 1 - c of the residual is dropped
    sharding: bool = True  # false: every bucket is one unit, however large
    init: float | None = None  # c of the first steps, in [0, 1]; None: 0.5, or 0.2 where I > 8
    ascend_range: float = 0.1  # c grows by it, >= 0
    ascend_steps: int | None = None  # steps between rises, >= 1; None: 50, or 100 if I > 8
    _last: list[int] = field(default_factory=list, init=False, repr=False)  # elements by bucket
    _sizes: list[int] = field(default_factory=list, init=False, repr=False)  # now, so far

    def __post_init__(self) -> None:
        if self.init is not None and not 0 <= self.init <= 1:
            raise ValueError(f"init must be in [0, 1] or null, got {self.init}")
        if not self.ascend_range >= 0:
            raise ValueError(f"ascend_range must be >= 0, got {self.ascend_range}")
        if self.ascend_steps is not None and not self.ascend_steps >= 1:
            raise ValueError(f"ascend_steps must be >= 1 or null, got {self.ascend_steps}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean, [n], of g + c e in the bucket's unit whose turn it is, and 0 elsewhere.

        A unit of u elements takes one all-reduce of 4u bytes: 2 (P - 1) / P 4u are sent. `unsent`
        is g + c e, zeroed where it was sent.
        """
        every = interval(density)
        grad = add_scaled(bucket.buffers, self.coefficient(bucket.step, every))
        first, end = self._turn(bucket, every)
        if end - first == grad.numel():
            return Reduced(workers.all_reduce(bucket.empty_mean().copy_(grad)), unsent=None)
        sent = grad[first:end].clone()
        grad[first:end] = 0
        mean = bucket.empty_mean().zero_()
        if first < end:
            mean[first:end] = workers.all_reduce(sent)
        return Reduced(mean, unsent=grad)

    def coefficient(self, step: int, every: int) -> float:
        """Return the residual's coefficient c at `step`, with I = `every`."""
        init, steps = SCHEDULES[every > SHORT]
        init = init if self.init is None else self.init
        return min(1.0, init + step // (self.ascend_steps or steps) * self.ascend_range)

    def _turn(self, bucket: Bucket, every: int) -> tuple[int, int]:
        """Return the first element to send, and the one after the last; equal if none is sent.

        A bucket has at most I units, numbered without gaps, so at most one has its turn.
        """
        index, n = bucket.index, bucket.n
        if index == 0:
            self._last, self._sizes = self._sizes, []
        self._sizes.append(n)
        unit, parts = index, 1
        if self.sharding and self._sizes == self._last[: index + 1]:
            counts = shards(self._last, every)
            unit, parts = sum(counts[:index]), counts[index]
        part = -(unit + bucket.step) % every
        return (part * n // parts, (part + 1) * n // parts) if part < parts else (0, 0)


def interval(density: float) -> int:
    """Return I, the least whole number for which 1 / I is not above `density`."""
    return max(1, ceil((1 - TOLERANCE) / density))


def shards(sizes: list[int], every: int) -> list[int]:
    """Return the number of units of each bucket of `sizes` elements, with I = `every`."""
    usual = median(sizes)
    return [min(every, max(1, int(size // usual))) for size in sizes]
