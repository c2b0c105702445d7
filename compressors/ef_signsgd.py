"""EF-signSGD: signs times the mean magnitude, made right by error feedback (Karimireddy, 2019).

Signs are packed to bits. Meant for `error_feedback: true`: without it the scaled sign alone need
not converge. The paper's worker sends sign and ||p||_1 / d of p = lr g + e; here p = g + e, which
is the same while the learning rate is constant.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from compressors import kernels
from compressors.base import Bucket, Reduced, Workers
from compressors.packing import BYTE, add_signs_, pack_signs


@dataclass
class EFSignSGD:
    uniform_density: ClassVar[bool] = False
    has_level: ClassVar[bool] = False
    layerwise: bool = False  # one scale for every parameter, not one for the bucket

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of every worker's signs of `bucket.grad`, [n], times its mean magnitude.

        Each worker contributes ceil(n/8) + 4 bytes to an all-gather; with L scales for L layers,
        the sum of their ceil(n/8) + 4. `unsent` is `bucket.grad` less what was sent. `density` is
        ignored.
        """
        grad = bucket.grad
        sizes = [part.numel() for part in bucket.gradients] if self.layerwise else [grad.numel()]
        layers = grad.split(sizes)
        scales = torch.stack([mean_magnitude(layer) for layer in layers])
        own = torch.cat([pack_signs(layer) for layer in layers])
        mean = torch.zeros_like(grad)
        for packed, theirs in workers.all_gather(own, scales, equal=True):
            _add_(mean, sizes, packed, theirs / workers.size)
        _add_(grad, sizes, own, -scales)
        return Reduced(mean, unsent=grad)


def mean_magnitude(x: Tensor) -> Tensor:
    """float32 []; 0 for no elements. Summed in float64: float32 loses digits over millions."""
    if (native := kernels.of(x)) is not None:
        return x.new_tensor(native.signs.magnitudes(x.numpy()) / max(1, x.numel()))
    total = torch.linalg.vector_norm(x, 1, dtype=torch.float64)
    return (total / max(1, x.numel())).to(x.dtype)


def _add_(total: Tensor, sizes: list[int], packed: Tensor, scales: Tensor) -> None:
    """Add the signs of all layers, packed one after the other, each times its scale."""
    bytes_of = [-(-size // BYTE) for size in sizes]
    layers = zip(total.split(sizes), packed.split(bytes_of), scales, strict=True)
    for layer, signs, scale in layers:
        add_signs_(layer, signs, scale)
