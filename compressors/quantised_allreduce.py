"""Quantised all-reduce: codes and scales travel both ways, sums are float32 (Wang et al., 2024).

This is ZeRO++'s qgZ on one level, as in torchft: a reduce-scatter and an all-gather of codes. Every
worker sends each other worker its slice as codes of 8 or 4 bits, with a scale for each row of 256
elements, their largest magnitude. The owner of a slice sums the decoded values in float32,
quantises the mean, and sends it to all. Codes are never summed. Rounding is to the nearest code.
`unsent` is the first rounding error. The second is dropped or, with `server_feedback`, kept and
added to the slice's next mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Size, Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.buffers import Buffers
from compressors.fused import add_and_round, mean_of_rounded
from compressors.packing import packed_bytes
from compressors.stochastic import Grid
from compressors.workspace import workspace

WIDTHS = (4, 8)
SIZES = 256  # of buckets and slices whose rows are kept
PACKED_TOGETHER = 64  # codes: slices of a multiple of this fill whole bytes
MOST_ROW = 2**20  # a short bucket is filled up to whole rows, so this bounds its memory


@dataclass
class QuantisedAllReduce(Compressor):
    """Compressor that keeps, with `server_feedback`, a slice of float32 of every bucket."""

    by_shape = True
    has_level = False
    pushes = False
    bits: int = 8  # of a code: 8 | 4
    row: int = 256  # elements that share a scale, a multiple of 64
    server_feedback: bool = False  # keep the error of the second rounding
    server_errors: dict[tuple[str, ...], Tensor] = field(
        default_factory=dict, init=False, repr=False
    )
    rounding: float = field(init=False)
    is_mean: bool = field(init=False)

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise ValueError(f"bits must be 4 or 8, got {self.bits}")
        if not (1 <= self.row <= MOST_ROW and self.row % PACKED_TOGETHER == 0):
            allowed = f"a multiple of {PACKED_TOGETHER} in [{PACKED_TOGETHER}, {MOST_ROW}]"
            raise ValueError(f"row must be {allowed}, got {self.row}")
        self.is_mean = not self.server_feedback  # kept errors are added to the mean
        self.rounding = 1 / (2 * Grid(torch.empty(0), self.bits).levels)  # of the second

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean gradient, [n], rounded twice. `density` is ignored.

        A slice has R = ceil(n / row / P) rows, of S = row bits / 8 + 4 bytes each. A worker sends R
        S bytes to each other worker and contributes R S to an all-gather (less for the last
        slices). `unsent` is `bucket.grad` less what was sent to the owners.
        """
        length = self.row * -(-bucket.n // (self.row * workers.world_size))
        lengths = _lengths(bucket.n, length, workers.world_size)
        codes, scales = self._rounded(bucket.buffers)
        pieces = self._cut(codes, scales, lengths)
        arrived = workers.all_to_all(*pieces, equal=True)
        answer = self._answer(arrived, bucket, lengths[workers.rank])
        answers = workers.all_gather(*self._padded(answer, length), equal=True)
        mean = bucket.empty_mean()
        for part, (codes, scales) in zip(mean.split(lengths), answers, strict=True):
            filled = packed_bytes(len(part), self.bits), -(-len(part) // self.row)
            rounded = codes[: filled[0]], scales[: filled[1]]
            mean_of_rounded(Buffers(part, out=part), self._grid(len(part)), [rounded])
        return Reduced(mean, unsent=bucket.grad)

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        n = sum(shape.numel() for shape in shapes)
        length = self.row * -(-n // (self.row * workers.world_size))
        lengths = _lengths(n, length, workers.world_size)
        return torch.empty(lengths[workers.rank], device="meta")

    def _grid(self, n: int) -> Grid:
        return Grid(_ends(n, self.row), self.bits)

    def _rounded(self, buffers: Buffers) -> tuple[Tensor, Tensor]:
        """Quantise the sum that `buffers` hold, [n], to the nearest codes.

        Return packed codes, uint8, and the step of each row, float32 [rows]. The buffers keep the
        sum minus the decoded values.
        """
        grid = self._grid(buffers.n)
        steps = torch.empty(grid.ends.numel(), device=buffers.device)
        return add_and_round(buffers, grid, steps, None, "max"), steps

    def _cut(self, codes: Tensor, steps: Tensor, lengths: list[int]) -> list[list[Tensor]]:
        """Split packed codes and steps into slices of `lengths` elements: [codes], [steps].

        A slice is a whole number of rows, so its codes fill whole bytes.
        """
        nbytes = [packed_bytes(n, self.bits) for n in lengths]
        return [list(codes.split(nbytes)), list(steps.split([-(-n // self.row) for n in lengths]))]

    def _answer(
        self, arrived: list[tuple[Tensor, ...]], bucket: Bucket, length: int
    ) -> tuple[Tensor, Tensor]:
        """Quantise the mean of this worker's slice of `length` elements. Return codes and steps.

        `arrived` has each worker's codes and steps of this slice, by rank. Codes are uint8, packed,
        and steps are float32, one per row. With `server_feedback`, the kept error of `bucket` is
        added first and then replaced by the new rounding error. An empty slice has an empty result.
        """
        if length == 0:
            return arrived[0][0], arrived[0][1]
        total = workspace("slice", length, torch.float32, bucket.device)
        mean_of_rounded(Buffers(total, out=total), self._grid(length), arrived)
        if not self.server_feedback:
            return self._rounded(Buffers(total, out=total))
        return self._rounded(Buffers(total, self._error(bucket.names, total)))

    def _padded(self, answer: tuple[Tensor, Tensor], length: int) -> list[Tensor]:
        """Return codes and steps, zero-padded to those of `length` elements as on all workers."""
        codes, steps = answer
        whole = packed_bytes(length, self.bits), length // self.row
        parts = zip(("padded codes", "padded steps"), (codes, steps), whole, strict=True)
        return [
            part if len(part) == most else _padded(role, part, most) for role, part, most in parts
        ]

    def _error(self, names: tuple[str, ...], total: Tensor) -> Tensor:
        """Return the rounding error kept for this worker's slice of the bucket `names`, [slice].

        It is zero if the bucket is new or the slice has another length than `total`. Then the
        errors of all buckets that share a parameter with it are forgotten. The caller updates the
        tensor in place.
        """
        known = self.server_errors.get(names)
        if known is None or known.numel() != total.numel():
            for old in [old for old in self.server_errors if set(old) & set(names)]:
                del self.server_errors[old]
            known = self.server_errors[names] = torch.zeros_like(total)
        return known


def _lengths(n: int, length: int, count: int) -> list[int]:
    """Return the lengths of `count` slices of n, each <= `length`; the last may be empty."""
    return [min(length, max(0, n - first)) for first in range(0, count * length, length)]


def _padded(role: str, part: Tensor, length: int) -> Tensor:
    """Return `part` padded with zeros to [length], in the workspace of `role`."""
    room = workspace(role, length, part.dtype, part.device)
    room[: len(part)], room[len(part) :] = part, 0
    return room


@lru_cache(SIZES)
def _ends(n: int, row: int) -> Tensor:
    """Return the position after each row, int64 [ceil(n / row)]; the last is n."""
    return torch.arange(row, n + row, row).clamp_(max=n)
