"""Steps of algorithms in one pass over a bucket's memory, named after what they do.

Each makes the sum of gradient and residual if nothing has yet, takes its step on the sum, and
checks that the gradient is finite. `fused_step(bucket.buffers, ...)` gives the same bits as the
step on `bucket.grad`. Results lie in memory that this thread reuses in the same step, or for
entries in the next search.
"""

from collections.abc import Sequence
from math import isfinite

import numpy as np
import torch
from torch import Tensor

from compressors import kernels
from compressors.base import Workers
from compressors.buffers import Buffers
from compressors.chunks import Chunks, add_find_
from compressors.kernels import gpu
from compressors.packing import NOTHING, add_pack_signs_, add_signs_
from compressors.sparse import add_at_, add_take_out_, sum_
from compressors.stochastic import Grid, add_measure_, add_round_, average_
from compressors.topk_select import Entries, add_reaching_, estimate, take_largest_
from compressors.workspace import workspace


def add_and_take_largest(buffers: Buffers, k: int) -> Entries:
    """Take out, zero and return the k entries of largest magnitude, the first of equal ones.

    Raise FloatingPointError if the gradient is not finite.
    """
    addend, zeroes = buffers.take_zeroed_addend()
    found = take_largest_(buffers.total, k, addend, zeroes)
    _check_taken(buffers, found)
    return found


def add_and_take_reaching(buffers: Buffers, threshold: Tensor) -> Entries:
    """Take out nonzero entries of magnitude >= `threshold`, float32 [], and zero them.

    Raise FloatingPointError if the gradient is not finite.
    """
    addend, zeroes = buffers.take_zeroed_addend()
    found = add_reaching_(buffers.total, threshold, addend, zeroes, erase=True)
    _check_taken(buffers, found)
    return found


def add_and_take_reaching_each(buffers: Buffers, thresholds: Sequence[Tensor]) -> Entries:
    """Do the work of `add_and_take_reaching` on parts of the buffers, each with its threshold."""
    total, gradient, first = buffers.total, buffers.origin.gradient, 0
    found = Entries.none(total)
    for part, threshold in zip(buffers.parts, thresholds, strict=True):
        end = first + part.n
        addend, zeroes = part.take_zeroed_addend()
        other = None if addend is None else gradient[:end]
        found = add_reaching_(
            total[:end], threshold, other, zeroes, known=found, first=first, erase=True
        )
        first = end
    _check_taken(buffers, found)
    return found


def add_and_find_reaching(buffers: Buffers, threshold: Tensor) -> Entries:
    """Do the work of `add_and_take_reaching` without zeroing the entries."""
    addend, zeroes = buffers.take_zeroed_addend()
    found = add_reaching_(buffers.total, threshold, addend, zeroes)
    buffers.check_finite(float(found.values.sum()))
    return found


def add_and_find_largest_of_chunks(buffers: Buffers, chunks: Chunks) -> Entries:
    """Return the largest entries of every chunk, as `add_find_`, without zeroing them.

    Raise FloatingPointError if the gradient is not finite.
    """
    addend, zeroes = buffers.take_zeroed_addend()
    found = add_find_(buffers.total, addend, zeroes, chunks)
    buffers.check_finite(float(found.values.sum()))
    return found


def subtract(buffers: Buffers, values: Tensor, index: Tensor) -> None:
    """Subtract `values` [k] at `index` [k], if a residual is needed."""
    if buffers.needs_residual:
        add_at_(buffers.total, index, values, -1.0)


def add_and_take_capacity(buffers: Buffers, threshold: Tensor, capacity: int) -> Entries:
    """Do the work of `add_and_take_reaching` for exactly `capacity` entries.

    These are the first ones; zeros fill up if there are fewer. A GPU's host need not know how many.
    """
    found = gpu.select_(buffers.total, threshold, capacity, buffers.take_addend())
    entries = Entries(found.where, found.values)
    _check_taken(buffers, entries)
    buffers.check_finite(float(buffers.total.sum()))  # it may be in one that found no room
    return entries


def add_and_take(buffers: Buffers, index: Tensor) -> Tensor:
    """Take out the values at `index`, int32 [k], ascending. Zero them if a residual is needed.

    Raise FloatingPointError if the gradient is not finite.
    """
    addend, zeroes = buffers.take_zeroed_addend()
    total, erases = buffers.total, buffers.needs_residual
    values = workspace("values", index.numel(), total.dtype, total.device)
    values, seen = add_take_out_(total, addend, zeroes, index, erases, values)
    if not isfinite(seen):
        _examine_taken(buffers, Entries(index, values), erases)
    return values


def sampled_threshold(buffers: Buffers, density: float, size: int, start: int) -> Tensor:
    """Return the magnitude, float32 [], that a share `density` of a sample exceeds.

    The sample is `size` of the n elements, or all. `start` shifts it. Nothing is added yet.
    """
    return estimate(buffers.total, density, size, start, buffers.addend)


def add_scaled(buffers: Buffers, factor: float) -> Tensor:
    """Return the gradient plus `factor` times the residual, [n], in the gradient's memory.

    Call it before anything else adds the residual. Raise FloatingPointError for NaN or inf in it.
    """
    addend = buffers.addend
    assert addend is not None or buffers.total is buffers.origin.gradient, "e has been added"
    if addend is not None:
        buffers.check_finite(float(addend.sum()))
        torch.add(addend, buffers.total, alpha=factor, out=buffers.total)
        buffers.take_addend()
    return buffers.grad


def add_and_pack_signs(
    parts: Sequence[Buffers], packed: Sequence[Tensor], squared: bool = False
) -> list[Tensor]:
    """Write every part's signs to `packed`. Return mean magnitudes or squares, float64 [].

    Raise FloatingPointError if the gradient is not finite.
    """
    means = [
        add_pack_signs_(part.total, part.take_addend(), signs, squared)
        for part, signs in zip(parts, packed, strict=True)
    ]
    parts[0].check_finite(sum(map(float, means)))
    return means


def subtract_signs(part: Buffers, packed: Tensor, scale: Tensor) -> None:
    """Subtract the signs times `scale`, if a residual is needed."""
    if part.needs_residual:
        add_signs_(part.total, packed, -scale)


def add_and_measure(part: Buffers) -> tuple[Tensor, Tensor]:
    """Add the residual. Return the sum's largest magnitude and sum of squares.

    These are float32 [] and float64 []. Raise FloatingPointError if the gradient is not finite.
    """
    largest, squares = add_measure_(part.total, part.take_addend())
    part.check_finite(float(largest))
    return largest, squares


def add_and_round(
    buffers: Buffers,
    grid: Grid,
    steps: Tensor,
    key: tuple[int, ...] | None,
    norm: str | None = None,
) -> Tensor:
    """Add the gradient and return packed codes, as `add_round_`.

    Subtract the rounded values if a residual is kept. With `norm`, write the blocks' norms to
    `steps`, and raise FloatingPointError if the gradient is not finite. Otherwise the caller has
    set `steps`.
    """
    addend, keeps = buffers.take_addend(), buffers.needs_residual
    packed = add_round_(buffers.total, addend, grid, steps, key, keeps, norm)
    if norm is not None:
        buffers.check_finite(float(steps.sum()))
    return packed


def mean_of_rounded(buffers: Buffers, grid: Grid, rounded: list[tuple[Tensor, ...]]) -> Tensor:
    """Return the mean, [n], of the workers' decoded values."""
    return average_(buffers.out_buffer()[0], grid, rounded)


def add_and_cast(buffers: Buffers, divisor: int, dtype: torch.dtype) -> tuple[Tensor, float]:
    """Return the sum over `divisor` in a 16-bit type, [n], and the sum's largest magnitude.

    The rounding error remains in the sum, if a residual is needed. Raise FloatingPointError if the
    gradient is not finite.
    """
    total = buffers.total
    wire = workspace("wire", buffers.n, dtype, total.device)
    largest = add_cast_(total, buffers.take_addend(), divisor, wire, buffers.needs_residual)
    buffers.check_finite(largest)
    return wire, largest


def scatter(buffers: Buffers, entries: Sequence[tuple[Tensor, ...]], factor: float = 1.0) -> Tensor:
    """Return factor times the sum of sparse vectors, [n]; `entries` are (index, values) pairs."""
    mean, is_zero = buffers.out_buffer()
    return sum_(mean, entries, factor, is_zero)


def scatter_mean(buffers: Buffers, values: Tensor, index: Tensor, workers: Workers) -> Tensor:
    """Return the mean over workers, [n], of the vectors with `values` [k] at `index` [k].

    k may differ between workers. Each contributes k (4 + bytes of an index) to an all-gather. All
    workers add in the order of ranks, so their results have equal bits. On a GPU this also needs
    distinct indices within each worker.
    """
    return scatter(buffers, workers.all_gather(values, index), 1 / workers.world_size)


def _check_taken(buffers: Buffers, found: Entries) -> None:
    """Check finiteness from the largest entries, which include all that are not finite."""
    if buffers.origin.examine is not None and not isfinite(float(found.values.sum())):
        _examine_taken(buffers, found, erases=True)


def _examine_taken(buffers: Buffers, found: Entries, erases: bool) -> None:
    index = found.index.long()
    buffers.total.index_copy_(0, index, found.values)
    buffers.examine()
    if erases:
        buffers.total.index_fill_(0, index, 0)


def add_cast_(total: Tensor, added: Tensor | None, size: int, wire: Tensor, keep: bool) -> float:
    """Write (total += added) / size to `wire`, all [n]. Return the sum's largest magnitude.

    With `keep`, `total` becomes the rounding error, otherwise the sum.
    """
    native = kernels.of(total, added)
    kernels.require_room("wire", wire, total.numel())
    if native is not None:
        other = NOTHING if added is None else added.numpy()
        bits = wire.view(torch.int16).numpy().view(np.uint16)
        is_bfloat = wire.dtype == torch.bfloat16
        largest = native.casts.encode(total.numpy(), other, size, is_bfloat, keep, bits)
        return float(np.int32(largest).view(np.float32))
    if gpu.takes(total):
        return float(gpu.add_cast_(total, added, size, wire, keep))
    if added is not None:
        total.add_(added)
    largest = float(torch.stack(torch.aminmax(total)).abs().max())
    wire.copy_(total * (1 / size))
    if keep:
        total.sub_(wire.float().mul_(size))
    return largest
