"""1-bit compressed all-reduce with errors kept on both sides (1-bit Adam; Tang et al., 2021).

The form of DeepSpeed: worker j is the server of slice j. Every worker sends each server the signs
of its slice, packed, and a scale; the server averages what they stand for, adds what it could not
send before, and sends every worker the signs of that with a scale. The workers' errors are in
`unsent`, so this is for `error_feedback: true`; the servers' are kept here, by bucket. We differ:
- a worker has a scale (root mean square) for each slice, not one for all: no other collective;
- DDP may lay out its buckets anew, once; what the servers had not sent of the old ones is dropped.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.packing import (
    BYTE,
    add_all_signs_,
    add_pack_signs_,
    add_signs_,
    packed_bytes,
)
from compressors.workspace import workspace


@dataclass
class OneBit(Compressor):
    """Keeps one slice of float32 for every bucket: what this server has not sent yet."""

    has_level = False
    is_mean = False  # of this step alone: what servers kept comes in, and goes
    adds = True
    pushes = False
    waits = True
    checks = True
    server_errors: dict[tuple[str, ...], Tensor] = field(
        default_factory=dict, init=False, repr=False
    )

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """About the mean of the gradients, [n]: a sign and the scale of its slice.

        With L = ceil(n / 8P), a worker sends L + 4 bytes to each other worker and contributes L + 4
        to an all-gather (of the last slices what there is). `unsent` is `bucket.grad`, the gradient
        less what was sent to the servers. `density` is ignored.
        """
        grad, size = bucket.grad, workers.size
        slice_bytes = -(-grad.numel() // (BYTE * size))
        slices, signs, scales = self._packed(bucket, slice_bytes, size)
        bucket.see(sum(map(float, scales)))
        total = self._error(bucket.names, slices[workers.rank])
        arrived = workers.all_to_all(signs, scales, equal=True)
        shares = [scale / size for _, scale in arrived]
        add_all_signs_(total, [packed for packed, _ in arrived], shares, onto=True)
        if bucket.is_kept:
            for one, packed, scale in zip(slices, signs, scales, strict=True):
                add_signs_(one, packed, -scale)
        return Reduced(self._answered(total, bucket, slice_bytes, workers), unsent=grad)

    def _packed(
        self, bucket: Bucket, slice_bytes: int, size: int
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Slices of the gradient, their signs, and their root mean squares, each [1]."""
        grad, added = bucket.grad, bucket.added
        slices = _slices(grad, slice_bytes, size)
        others = [None] * size if added is None else _slices(added, slice_bytes, size)
        memory = workspace("signs", slice_bytes * size, torch.uint8, grad.device)
        signs = [
            packed[: packed_bytes(one.numel(), 1)]
            for one, packed in zip(slices, memory.split(max(1, slice_bytes)), strict=True)
        ]
        each = zip(slices, others, signs, strict=True)
        scales = [add_pack_signs_(*one, squared=True).sqrt().to(grad.dtype) for one in each]
        return slices, signs, [scale.view(1) for scale in scales]

    def _answered(
        self, total: Tensor, bucket: Bucket, slice_bytes: int, workers: Workers
    ) -> Tensor:
        """Gather the signs of all servers' totals, [n]; `total` keeps this server's error."""
        packed = workspace("answer", slice_bytes, torch.uint8, total.device)
        scale = add_pack_signs_(total, None, packed, squared=True).sqrt().to(total.dtype).view(1)
        add_signs_(total, packed, -scale)
        answers = workers.all_gather(packed, scale, equal=True)
        mean = bucket.room()
        slices = _slices(mean, slice_bytes, workers.size)
        for one, (signs, theirs) in zip(slices, answers, strict=True):
            add_all_signs_(one, [signs], [theirs])
        return mean

    def _error(self, names: tuple[str, ...], like: Tensor) -> Tensor:
        """This server's error of the bucket of these parameters; zeros when it is new."""
        if names not in self.server_errors:
            for old in [old for old in self.server_errors if set(old) & set(names)]:
                del self.server_errors[old]
            self.server_errors[names] = torch.zeros_like(like)
        return self.server_errors[names]


def _slices(x: Tensor, slice_bytes: int, count: int) -> list[Tensor]:
    """Views of `count` slices of `x`, whole bytes of bits each; the last may be short or empty."""
    length = BYTE * slice_bytes
    return [x[start : start + length] for start in range(0, count * length, length)]
