"""Threshold sparsification: send elements above a bound given by a fitted distribution.

Elements are modelled as Laplace or normal with the bucket's mean and spread. The threshold is where
P(|X| >= threshold) equals the density: one pass over the gradient, without sorting. The Laplace
form is Appendix B of DCT (Gupta et al., 2021), given there for activations, with its one-sided
formula made two-sided. The normal form is GaussianK-SGD (Shi et al., 2019), without its corrections
by 2 % steps. We add two bounds, since gradients follow neither:
- At most `capacity` k entries are sent, k = density n, the largest ones. The rest is `unsent`.
- At least one entry is sent. Otherwise zeros are not sent.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import scatter_mean
from compressors.reductions import mean, mean_magnitude, mean_square
from compressors.sparse import erase_, index_dtype
from compressors.topk_select import Entries, add_reaching_, largest_of, take_largest_

HALVINGS = 60  # of the interval the threshold lies in: to the last bit of a float64


@dataclass
class ThresholdTopK(Compressor):
    model: str = "laplace"  # laplace | normal
    spread: str = "variance"  # variance: from the variance; magnitude: from the mean magnitude
    capacity: float = 2.0  # entries sent at most, as a multiple of k, >= 1
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        if self.model not in TAILS:
            raise ValueError(f"model must be {' or '.join(TAILS)}, got {self.model!r}")
        if self.spread not in ("variance", "magnitude"):
            raise ValueError(f"spread must be variance or magnitude, got {self.spread!r}")
        if not 1 <= self.capacity < math.inf:
            raise ValueError(f"capacity must be in [1, inf), got {self.capacity}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean, [n], of every worker's entries above its own threshold.

        With K entries, 1 <= K <= capacity max(1, floor(density n)), a worker contributes 8K bytes
        (12K with int64) to an all-gather. `unsent` is `bucket.grad`, zeroed where it was sent.
        """
        index, values = self._select(bucket.grad, density)
        erase_(bucket.grad, index)
        mean = scatter_mean(bucket.buffers, values, index.to(self._wire_dtype), workers)
        return Reduced(mean, unsent=bucket.grad)

    def _select(self, grad: Tensor, density: float) -> Entries:
        """Return the entries to send, [K], in this thread's memory until the next search."""
        k = max(1, int(density * grad.numel()))
        threshold = self.threshold(grad, density)
        if not math.isfinite(threshold):
            return take_largest_(grad, k)
        found = add_reaching_(grad, torch.tensor(threshold))
        if found.values.numel() > (most := int(self.capacity * k)):
            return largest_of(found, most)
        return found if found.values.numel() else take_largest_(grad, 1)

    def threshold(self, grad: Tensor, density: float) -> float:
        """Return the magnitude exceeded with probability `density`, finite only if `grad` is."""
        center = mean(grad)
        tail, of_deviation, of_magnitude = TAILS[self.model]
        if self.spread == "variance":
            scale = of_deviation * max(0.0, mean_square(grad) - center**2) ** 0.5
        else:
            scale = of_magnitude * mean_magnitude(grad)
        if not math.isfinite(center + scale):
            return math.nan
        return _solve(lambda t: tail(t, center, scale), density, abs(center), scale)


def _solve(tail: Callable[[float], float], density: float, center: float, scale: float) -> float:
    """Solve `tail(x) = density` by bisection. `tail` falls from 1 at 0."""
    if scale == 0:
        return center
    low, high = 0.0, center + scale
    while tail(high) > density:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > density else (low, middle)
    return low


def _laplace(t: float, center: float, scale: float) -> float:
    """Return P(|X| >= t), t >= 0, for a Laplace distribution of mean deviation `scale`."""
    center = abs(center)
    below = math.exp(-(t + center) / scale) / 2
    if t >= center:
        return math.exp((center - t) / scale) / 2 + below
    return 1 - math.exp((t - center) / scale) / 2 + below


def _normal(t: float, center: float, scale: float) -> float:
    """Return P(|X| >= t), t >= 0, for a normal distribution around `center`."""
    root = scale * math.sqrt(2)
    return (math.erfc((t - center) / root) + math.erfc((t + center) / root)) / 2


# tail; scale over the deviation; scale over the mean magnitude (for a mean of 0)
TAILS = {
    "laplace": (_laplace, math.sqrt(0.5), 1.0),
    "normal": (_normal, 1.0, math.sqrt(math.pi / 2)),
}
