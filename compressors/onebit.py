"""1-bit compressed all-reduce with error feedback on both sides (1-bit Adam; Tang et al., 2021).

This is the form of DeepSpeed, where worker j is the server of slice j. Every worker sends each
server the packed signs of its slice and a scale. The server averages the decoded slices and adds
its own error. It then sends the signs of the sum, and a scale, to every worker.

The workers' errors are in `unsent`, so use `error_feedback: true`. The servers' errors are kept
here, by bucket. We differ:
- a worker has a scale (root mean square) for each slice and not one for all, which saves a
  collective;
- DDP may rearrange its buckets once; the servers' errors of the old ones are then dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Size, Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.buffers import Buffers
from compressors.fused import add_and_pack_signs, subtract_signs
from compressors.packing import BYTE, add_all_signs_, packed_bytes
from compressors.workspace import workspace


@dataclass
class OneBit(Compressor):
    """Compressor that keeps, for every bucket, this server's unsent error, a float32 slice."""

    has_level = False
    is_mean = False  # of this step alone: what servers kept comes in, and goes
    pushes = False
    waits = True
    server_errors: dict[tuple[str, ...], Tensor] = field(
        default_factory=dict, init=False, repr=False
    )

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return about the mean gradient, [n]: one sign per element, and one scale per slice.

        With L = ceil(n / 8P), a worker sends L + 4 bytes to each other worker and contributes L + 4
        to an all-gather (less for the last slices). `unsent` is `bucket.grad`, the gradient less
        what was sent to the servers. `density` is ignored.
        """
        size, slice_bytes = workers.world_size, -(-bucket.n // (BYTE * workers.world_size))
        slices = bucket.split(_lengths(bucket.n, slice_bytes, size))
        signs, scales = _packed(slices, slice_bytes)
        total = self._error(bucket.names, slices[workers.rank])
        arrived = workers.all_to_all(signs, scales, equal=True)
        shares = [scale / size for _, scale in arrived]
        add_all_signs_(total, [packed for packed, _ in arrived], shares, onto=True)
        for one, packed, scale in zip(slices, signs, scales, strict=True):
            subtract_signs(one, packed, scale)
        mean = self._answered(total, bucket, slice_bytes, workers)
        return Reduced(mean, unsent=bucket.grad)

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        n = sum(shape.numel() for shape in shapes)
        lengths = _lengths(n, -(-n // (BYTE * workers.world_size)), workers.world_size)
        return torch.empty(lengths[workers.rank], device="meta")

    def _answered(
        self, total: Tensor, bucket: Bucket, slice_bytes: int, workers: Workers
    ) -> Tensor:
        """Send the signs of slice `total`, which keeps the error. Return the decoded mean, [n]."""
        packed = workspace("answer", slice_bytes, torch.uint8, total.device)
        own = Buffers(total)
        (square,) = add_and_pack_signs([own], [packed], squared=True)
        scale = square.sqrt().float().view(1)
        subtract_signs(own, packed, scale)
        answers = workers.all_gather(packed, scale, equal=True)
        mean = bucket.empty_mean()
        slices = mean.split(_lengths(bucket.n, slice_bytes, workers.world_size))
        for one, (signs, theirs) in zip(slices, answers, strict=True):
            add_all_signs_(one, [signs], [theirs])
        return mean

    def _error(self, names: tuple[str, ...], part: Buffers) -> Tensor:
        """Return the error kept for this server's slice of the bucket; zeros for a new bucket."""
        if names not in self.server_errors:
            for old in [old for old in self.server_errors if set(old) & set(names)]:
                del self.server_errors[old]
            self.server_errors[names] = torch.zeros(part.n, device=part.device)
        return self.server_errors[names]


def _packed(slices: list[Buffers], slice_bytes: int) -> tuple[list[Tensor], list[Tensor]]:
    """Add the residual to each of `slices`. Return their packed signs and root mean squares.

    The signs are uint8 tensors in the workspace, with at most `slice_bytes` bytes. The root mean
    squares are float32 [1].
    """
    memory = workspace("signs", slice_bytes * len(slices), torch.uint8, slices[0].device)
    signs = [
        packed[: packed_bytes(one.n, 1)]
        for one, packed in zip(slices, memory.split(max(1, slice_bytes)), strict=True)
    ]
    squares = add_and_pack_signs(slices, signs, squared=True)
    return signs, [square.sqrt().float().view(1) for square in squares]


def _lengths(n: int, slice_bytes: int, count: int) -> list[int]:
    """Return the lengths of `count` slices of n, in whole bytes; the last may be short or empty."""
    length = BYTE * slice_bytes
    return [min(length, max(0, n - start)) for start in range(0, count * length, length)]
