"""Stochastic rounding to multiples of a step, with the value as expectation, or to the nearest.

A vector is cut into blocks, each with its own step. An element becomes an integer number of steps,
at most `levels` up or down, in `width` bits. The probability of rounding up is a multiple of
2**-BITS, the nearest one, so the expectation is the value to half of that part of a step.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors import kernels
from compressors.counter_rng import BITS, halves, uniform
from compressors.kernels import gpu
from compressors.packing import BYTE, NOTHING, pack, packed_bytes, unpack
from compressors.workspace import workspace

NORMS = ("max", "l2")  # that a step may be derived from
SMALLEST = 2.0**-100  # step: its inverse, times 2**BITS, is finite


class Grid(NamedTuple):
    """The blocks of a bucket and the bits of a code, equal on all workers that average."""

    ends: Tensor  # int64 [blocks], on the CPU: where each block ends, ascending, the last at n
    width: int  # bits of a code, 2 to 8

    @property
    def levels(self) -> int:
        """Number of levels on either side of zero."""
        return (1 << self.width - 1) - 1


def add_measure_(total: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
    """Add `added` to `total`; return the largest magnitude, float32 [], and squares, float64 []."""
    native = kernels.of(total, added)
    if native is not None:
        other = NOTHING if added is None else added.numpy()
        largest, squares = native.quantise.add_measure(total.numpy(), other)
        return total.new_tensor(largest), torch.tensor(squares, dtype=torch.float64)
    if gpu.takes(total):
        return gpu.add_measure_(total, added)
    if added is not None:
        total.add_(added)
    largest = total.abs().max() if total.numel() else total.new_zeros(())
    return largest, total.double().square().sum()


def add_round_(
    total: Tensor,
    added: Tensor | None,
    grid: Grid,
    steps: Tensor,
    key: tuple[int, ...] | None,
    keep: bool,
    norm: str | None = None,
) -> Tensor:
    """Add `added` to `total`, [n] both, and return codes, uint8 [packed_bytes(n, width)].

    `steps`, [blocks], are given, or set to a block's norm, `max` or `l2`, over the levels. With
    `keep`, `total` becomes the sum less the rounded values, otherwise the sum. The random numbers
    follow from `key`; None rounds to the nearest. No step is below SMALLEST, so values far below
    are not sent. A block with NaN or inf has a step that is not finite: its codes are undefined and
    nothing is subtracted. The codes lie in this thread's memory.
    """
    n, device = total.numel(), total.device
    native = kernels.of(total, added)
    kernels.require_room("steps", steps, grid.ends.numel())
    if gpu.takes(total) and key is not None:
        return _rounded_on_gpu(total, added, grid, steps, key, keep, norm)
    if native is None:
        if added is not None:
            total.add_(added)
        if norm is not None:
            steps.copy_(_norms(total, int(grid.ends[0]), norm) / grid.levels)
        return pack(_codes(total, grid, steps.clamp_(min=SMALLEST), key, keep), grid.width)
    packed = workspace("packed codes", packed_bytes(n, grid.width), torch.uint8, device)
    source = native.quantise.GIVEN
    if norm is not None:
        source = native.quantise.LARGEST if norm == "max" else native.quantise.LENGTH
    native.quantise.encode(
        total.numpy(), NOTHING if added is None else added.numpy(), grid.ends.numpy(), source,
        grid.levels, grid.width, np.array(halves(key) if key is not None else (), np.uint32), keep,
        steps.numpy(), packed.numpy(),
    )  # fmt: skip
    return packed


def average_(mean: Tensor, grid: Grid, rounded: list[tuple[Tensor, ...]]) -> Tensor:
    """Write the mean of the workers' decoded values to `mean`, [n], added in the order of ranks."""
    if (native := kernels.of(mean)) is not None:
        nbytes = packed_bytes(mean.numel(), grid.width), 4 * grid.ends.numel()
        where = map(kernels.addresses, zip(*rounded, strict=True), nbytes)
        ends = grid.ends.numpy()
        native.quantise.average(*where, ends, grid.levels, grid.width, mean.numpy())
        return mean
    if gpu.takes(mean):
        blocks = gpu.Blocks.of(grid.ends, mean.device)
        shares = list(torch.stack([each for _, each in rounded]).div_(len(rounded)))
        codes = [each for each, _ in rounded]
        gpu.sum_rounded_(mean, blocks, grid.width, codes, shares)
        return mean
    mean.zero_()
    for packed, steps in rounded:
        levels = unpack(packed, grid.width, mean.numel())
        mean.add_(_values(levels, grid, steps / len(rounded)))
    return mean


def _rounded_on_gpu(
    total: Tensor,
    added: Tensor | None,
    grid: Grid,
    steps: Tensor,
    key: tuple[int, ...],
    keep: bool,
    norm: str | None,
) -> Tensor:
    """Do the work of `add_round_` on a GPU, with the same arguments. Return packed codes, uint8.

    Update `total`, and `steps` if `norm` is given. One pass suffices if blocks have a power of two
    of elements, from 8 to 2048. Otherwise the norms take a pass of their own.
    """
    blocks = gpu.Blocks.of(grid.ends, total.device)
    if norm is not None and blocks.power < BYTE:  # norms need a pass of their own
        if added is not None:
            total.add_(added)
        steps.copy_(_norms(total, int(grid.ends[0]), norm) / grid.levels)
        added = norm = None
    packed, rest = gpu.add_round_(total, added, blocks, steps, halves(key), grid.width, keep, norm)
    return torch.cat([packed, pack(rest, grid.width)]) if rest.numel() else packed


def _codes(x: Tensor, grid: Grid, steps: Tensor, key: tuple[int, ...] | None, keep: bool) -> Tensor:
    most, unit = grid.levels, 1 << BITS
    parts = (x * _each(grid, unit / steps)).clamp_(-most * unit, most * unit).round_()
    drawn = unit // 2 if key is None else uniform(x.numel(), key, x.device)
    whole = parts.int().add_(drawn).add_(most * unit)
    codes = whole.bitwise_right_shift_(BITS).to(torch.uint8)
    if keep:
        x.sub_(_values(codes, grid, steps.where(steps.isfinite(), 0)))
    return codes


def _values(codes: Tensor, grid: Grid, steps: Tensor) -> Tensor:
    return codes.to(steps.dtype).sub_(grid.levels).mul_(_each(grid, steps))


def _each(grid: Grid, steps: Tensor) -> Tensor:
    """Return the step of every element."""
    lengths = grid.ends.diff(prepend=grid.ends.new_zeros(1)).to(steps.device)
    n = int(grid.ends[-1]) if grid.ends.numel() else 0
    return steps.repeat_interleave(lengths, output_size=n)


def _norms(x: Tensor, block: int, norm: str) -> Tensor:
    """Return the norm of every block, [blocks]. The last may be shorter. Squares sum in float64."""
    whole = x.numel() // block * block
    parts = [part for part in (x[:whole].view(-1, block), x[whole:].view(1, -1)) if part.numel()]
    order, kind = (float("inf"), None) if norm == "max" else (2, torch.float64)
    found = [torch.linalg.vector_norm(part, order, dim=1, dtype=kind) for part in parts]
    return torch.cat(found).to(x.dtype)
