"""1-bit compressed all-reduce with errors kept on both sides (1-bit Adam; Tang et al., 2021).

The form of DeepSpeed: worker j is the server of slice j. Every worker sends each server the signs
of its slice, packed, and a scale; the server averages what they stand for, adds what it could not
send before, and sends every worker the signs of that with a scale. The workers' errors are in
`unsent`, so this is for `error_feedback: true`; the servers' are kept here, by bucket. We differ:
- a worker has a scale (root mean square) for each slice, not one for all: no other collective;
- DDP may lay out its buckets anew, once; what the servers had not sent of the old ones is dropped.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from compressors import kernels
from compressors.base import Bucket, Reduced, Workers
from compressors.packing import BYTE, add_signs_, pack_signs


@dataclass
class OneBit:
    """Keeps one slice of float32 for every bucket: what this server has not sent yet."""

    uniform_density: ClassVar[bool] = False
    has_level: ClassVar[bool] = False
    is_mean: ClassVar[bool] = False  # of this step alone: what servers kept comes in, and goes
    server_errors: dict[tuple[str, ...], Tensor] = field(
        default_factory=dict, init=False, repr=False
    )

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """About the mean of `bucket.grad`, [n]: a sign and the scale of its slice.

        With L = ceil(n / 8P), a worker sends L + 4 bytes to each other worker and contributes L + 4
        to an all-gather (of the last slices what there is). `unsent` is `bucket.grad` less what was
        sent to the servers. `density` is ignored.
        """
        grad, size = bucket.grad, workers.size
        slice_bytes = -(-grad.numel() // (BYTE * size))
        slices = _slices(grad, slice_bytes, size)
        signs = [pack_signs(one) for one in slices]
        scales = [root_mean_square(one).view(1) for one in slices]
        total = self._error(bucket.names, slices[workers.rank])
        for packed, scale in workers.all_to_all(signs, scales, equal=True):
            add_signs_(total, packed, scale / size)
        for one, packed, scale in zip(slices, signs, scales, strict=True):
            add_signs_(one, packed, -scale)
        return Reduced(self._answered(total, grad, slice_bytes, workers), unsent=grad)

    def _answered(self, total: Tensor, grad: Tensor, slice_bytes: int, workers: Workers) -> Tensor:
        """What all servers make of their totals, [n]; `total` keeps what this one does not say."""
        packed, scale = pack_signs(total), root_mean_square(total).view(1)
        add_signs_(total, packed, -scale)
        padded = torch.nn.functional.pad(packed, (0, slice_bytes - packed.numel()))
        mean = torch.zeros_like(grad)
        answers = workers.all_gather(padded, scale, equal=True)
        for one, (signs, theirs) in zip(
            _slices(mean, slice_bytes, workers.size), answers, strict=True
        ):
            add_signs_(one, signs, theirs)
        return mean

    def _error(self, names: tuple[str, ...], like: Tensor) -> Tensor:
        """This server's error of the bucket of these parameters; zeros when it is new."""
        if names not in self.server_errors:
            for old in [old for old in self.server_errors if set(old) & set(names)]:
                del self.server_errors[old]
            self.server_errors[names] = torch.zeros_like(like)
        return self.server_errors[names]


def root_mean_square(x: Tensor) -> Tensor:
    """float32 []; 0 for no elements. Squares are summed in float64, where they do not overflow."""
    if (native := kernels.of(x)) is not None:
        return x.new_tensor((native.signs.squares(x.numpy()) / max(1, x.numel())) ** 0.5)
    norm = torch.linalg.vector_norm(x, dtype=torch.float64)
    return (norm / max(1, x.numel()) ** 0.5).to(x.dtype)


def _slices(x: Tensor, slice_bytes: int, count: int) -> list[Tensor]:
    """Views of `count` slices of `x`, whole bytes of bits each; the last may be short or empty."""
    length = BYTE * slice_bytes
    return [x[start : start + length] for start in range(0, count * length, length)]
