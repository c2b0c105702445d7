"""DCT-DP: all above a threshold per parameter that is kept for many steps (Gupta et al., 2021).

Dynamic communication thresholding, Algorithm 1: every `lifespan` steps the threshold of a parameter
is set so that density n of its n entries reach it; in between, whatever reaches it is sent, and
zeros never are. How many that is drifts; the bytes sent tell. Meant for `error_feedback: true`. We
differ from the paper, which compresses fully connected layers for a parameter server, in that
- all parameters are compressed, and workers gather the entries and average them;
- the printed index, undefined for small layers, is read as: n - floor(n (1 - density)) are kept,
  one at least;
- a threshold is also computed anew when the density has changed, so that a controller has an
  effect, and when it is zero, which would let everything pass.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from compressors.base import Bucket, Reduced, Workers
from compressors.magnitude import add_at_least_, at_least, bits, largest
from compressors.sparse import add_, average, index_dtype, take_out_


class Threshold(NamedTuple):
    """A magnitude, float32 [], and what it was computed for."""

    value: Tensor
    density: float


@dataclass
class DCTDP:
    """Keeps a threshold by parameter name: DDP may lay out its buckets anew."""

    uniform_density: ClassVar[bool] = False
    adds: ClassVar[bool] = True
    lifespan: int = 1000  # steps between two computations of a threshold, >= 1
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8
    thresholds: dict[str, Threshold] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        if self.lifespan < 1:
            raise ValueError(f"lifespan must be >= 1, got {self.lifespan}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean, [n], of every worker's entries that reach its own thresholds.

        With K entries, 0 <= K <= n, a worker contributes 8K bytes (12K with int64) to an
        all-gather. `unsent` is `bucket.grad`, the gradient, zero where it was sent.
        """
        grad, first, found = bucket.grad, 0, []
        sizes = [part.numel() for part in bucket.gradients]
        added = [None] * len(sizes) if bucket.added is None else bucket.added.split(sizes)
        for name, part, new in zip(bucket.names, grad.split(sizes), added, strict=True):
            where = self._reaching(name, part, new, density, bucket.step, bucket.may_clear)
            found.append(where.add_(first))
            first += part.numel()
        index = torch.cat(found)
        values = take_out_(grad, index)
        index, out = index.to(self._wire_dtype), bucket.room()
        mean = average(values, index, grad.numel(), workers, out, bucket.may_clear)
        return Reduced(mean, unsent=grad)

    def _reaching(
        self, name: str, part: Tensor, added: Tensor | None, density: float, step: int, clear: bool
    ) -> Tensor:
        """Positions of what reaches the threshold of parameter `name`, [n], `added` to it.

        The threshold is computed where it is due. `clear` sets `added` to zero.
        """
        known = self.thresholds.get(name)
        due = step % self.lifespan == 0
        if known is None or due or known.density != density or known.value == 0:
            if added is not None:
                add_(part, added, clear)
                added = None
            known = self.thresholds[name] = Threshold(kept(part, density), density)
        if added is None:
            return at_least(part, known.value)
        return add_at_least_(part, added, known.value, clear)


def kept(grad: Tensor, density: float) -> Tensor:
    """The magnitude, float32 [], that n - floor(n (1 - density)) of `grad`, [n], reach."""
    n = grad.numel()
    count = max(1, n - int(n * (1 - density)))
    return bits(grad.index_select(0, largest(grad, count))).min().view(torch.float32)
