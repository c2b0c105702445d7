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
from typing import ClassVar

import torch
from torch import Tensor

from compressors.base import Bucket, Reduced, Workers
from compressors.packing import pack, unpack
from compressors.stochastic import add_levels_, rounded

WIDTH = 2  # bits of a code


@dataclass
class TernGrad:
    uniform_density: ClassVar[bool] = False
    has_level: ClassVar[bool] = False
    clip: float = 2.5  # deviations beyond which a gradient is clipped, >= 1; .inf: never
    layerwise: bool = True  # a scale for every parameter, not one for the bucket
    seed: int = 0  # what is drawn follows from (seed, step, bucket, rank)

    def __post_init__(self) -> None:
        if not self.clip >= 1:
            raise ValueError(f"clip must be >= 1 (.inf for none), got {self.clip}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of every worker's ternary `bucket.grad`, [n].

        Each worker contributes ceil(n / 4) + 4 L bytes to an all-gather, with L scales. `unsent` is
        `bucket.grad` less what was sent, clipping included. `density` is ignored.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        sizes = [part.numel() for part in bucket.gradients] if self.layerwise else [n]
        scales = torch.stack([self._scale(layer) for layer in grad.split(sizes)])
        ratios = torch.empty_like(grad)
        for ratio, layer, scale in zip(ratios.split(sizes), grad.split(sizes), scales, strict=True):
            torch.div(layer, scale.where(scale != 0, 1), out=ratio)
        key = (self.seed, bucket.step, bucket.index, workers.rank)
        codes = rounded(ratios.clamp_(-1, 1), 1, key)
        mean = torch.zeros_like(grad)
        for packed, theirs in workers.all_gather(pack(codes, WIDTH), scales, equal=True):
            _add_(mean, sizes, unpack(packed, WIDTH, n), theirs / workers.size)
        _add_(grad, sizes, codes, -scales)
        return Reduced(mean, unsent=grad)

    def _scale(self, layer: Tensor) -> Tensor:
        """The largest magnitude after clipping, float32 []."""
        norm = torch.linalg.vector_norm(layer, dtype=torch.float64)
        bound = (self.clip / layer.numel() ** 0.5 * norm).to(layer.dtype)
        return torch.minimum(torch.linalg.vector_norm(layer, float("inf")), bound)


def _add_(total: Tensor, sizes: list[int], codes: Tensor, scales: Tensor) -> None:
    for layer, own, scale in zip(total.split(sizes), codes.split(sizes), scales, strict=True):
        add_levels_(layer, own, 1, scale)
