"""TernGrad: every element as -1, 0 or +1 times a scale, without bias (Wen et al., 2017).

An element v of a layer with largest magnitude s becomes s sign(v) with probability |v| / s, else 0.
Before that, elements are clipped to 2.5 standard deviations of the layer. Clipping adds bias, and
keeps rare large elements from zeroing the others. Use `error_feedback: false`: the error can exceed
the gradient, and feedback then grows. We differ from the paper:
- The deviation is taken about zero, so a layer of equal elements, or of one, is not clipped.
- Workers do not share their largest scale. They gather codes and average the decoded values, so the
  mean needs no common levels.
- All layers are ternary, including the last one and biases.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.buffers import Buffers
from compressors.fused import add_and_measure, add_and_round, mean_of_rounded
from compressors.stochastic import Grid

WIDTH = 2  # bits of a code


@dataclass
class TernGrad(Compressor):
    has_level = False
    clip: float = 2.5  # deviations beyond which a gradient is clipped, >= 1; .inf: never
    layerwise: bool = True  # a scale for every parameter, not one for the bucket
    seed: int = 0  # random numbers follow from (seed, step, bucket, rank)

    def __post_init__(self) -> None:
        if not self.clip >= 1:
            raise ValueError(f"clip must be >= 1 (.inf for none), got {self.clip}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of every worker's ternary gradient, [n].

        Each worker contributes ceil(n / 4) + 4 L bytes to an all-gather, with L scales. `unsent` is
        `bucket.grad`, the gradient less what was sent, clipping included. `density` is ignored.
        """
        sizes = bucket.sizes if self.layerwise else [bucket.n]
        scales = torch.stack([self._scale(layer) for layer in bucket.split(sizes)])
        grid = Grid(torch.tensor(sizes).cumsum(0), WIDTH)
        key = (self.seed, bucket.step, bucket.index, workers.rank)
        packed = add_and_round(bucket.buffers, grid, scales, key)
        rounded = workers.all_gather(packed, scales, equal=True)
        return Reduced(mean_of_rounded(bucket.buffers, grid, rounded), unsent=bucket.grad)

    def _scale(self, layer: Buffers) -> Tensor:
        """Return the largest magnitude after clipping, float32 []."""
        largest, squares = add_and_measure(layer)
        deviation = (squares / max(1, layer.n)).sqrt()
        bound = deviation.where(deviation == 0, self.clip * deviation)
        return torch.minimum(largest, bound.float())
