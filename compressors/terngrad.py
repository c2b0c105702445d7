"""TernGrad: every element as -1, 0 or +1 times a scale, without bias (Wen et al., 2017).

An element v of a layer with largest magnitude s becomes s sign(v) with probability |v| / s, else 0.
Before that it is clipped to 2.5 standard deviations of the layer, which biases it, and keeps rare
large elements from making the others zero. It is meant for `error_feedback: false`: its error can
exceed the gradient, and feedback then grows. We differ from the paper in that
- a deviation is taken about zero: of a layer of equal elements, or of one, nothing is clipped;
- workers do not share the largest of their scales: they average what each one's codes stand for,
  gathered, so that the mean needs no level that all have;
- all layers are ternary, also the last one, and biases.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.stochastic import Grid, add_measure_, add_round_, average_

WIDTH = 2  # bits of a code


@dataclass
class TernGrad(Compressor):
    has_level = False
    adds = True
    checks = True
    clip: float = 2.5  # deviations beyond which a gradient is clipped, >= 1; .inf: never
    layerwise: bool = True  # a scale for every parameter, not one for the bucket
    seed: int = 0  # what is drawn follows from (seed, step, bucket, rank)

    def __post_init__(self) -> None:
        if not self.clip >= 1:
            raise ValueError(f"clip must be >= 1 (.inf for none), got {self.clip}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of every worker's ternary gradient, [n].

        Each worker contributes ceil(n / 4) + 4 L bytes to an all-gather, with L scales. `unsent` is
        `bucket.grad`, the gradient less what was sent, clipping included. `density` is ignored.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        sizes = [part.numel() for part in bucket.gradients] if self.layerwise else [n]
        added = [None] * len(sizes) if bucket.added is None else bucket.added.split(sizes)
        pairs = zip(grad.split(sizes), added, strict=True)
        scales = torch.stack([self._add_scale_(*pair) for pair in pairs])
        bucket.see(float(scales.sum()))
        grid = Grid(torch.tensor(sizes).cumsum(0), WIDTH)
        key = (self.seed, bucket.step, bucket.index, workers.rank)
        packed = add_round_(grad, None, grid, scales, key, bucket.is_kept)
        rounded = workers.all_gather(packed, scales, equal=True)
        return Reduced(average_(bucket.room(), grid, rounded), unsent=grad)

    def _add_scale_(self, layer: Tensor, added: Tensor | None) -> Tensor:
        """The largest magnitude after clipping of layer += added, float32 []."""
        largest, squares = add_measure_(layer, added)
        deviation = (squares / max(1, layer.numel())).sqrt()
        bound = deviation.where(deviation == 0, self.clip * deviation)
        return torch.minimum(largest, bound.to(layer.dtype))
