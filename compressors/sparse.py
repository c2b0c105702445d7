"""Sparse vectors: take values with their positions out of a vector, put them back, and add them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from compressors import kernels
from compressors.packing import NOTHING
from compressors.topk_select import Entries
from compressors.workspace import workspace

INDEX_DTYPES = {"int32": torch.int32, "int64": torch.int64}


def index_dtype(name: str) -> torch.dtype:
    """Return the type in which positions travel; ValueError for a name outside INDEX_DTYPES."""
    if name not in INDEX_DTYPES:
        allowed = " or ".join(INDEX_DTYPES)
        raise ValueError(f"index_dtype must be {allowed}, got {name!r}")
    return INDEX_DTYPES[name]


def add_(total: Tensor, added: Tensor, clear: bool) -> float:
    """Add `added` to `total`, [n]; `clear` zeroes it. Return a number finite only if the sum is."""
    return add_take_out_(total, added, clear, total.new_empty(0, dtype=torch.int32))[1]


def add_take_out_(
    total: Tensor,
    added: Tensor | None,
    clear: bool,
    index: Tensor,
    erase: bool = True,
    out: Tensor | None = None,
) -> tuple[Tensor, float]:
    """Add `added` to `total`, [n], if given, and return the sum's entries at `index`.

    Also return a number that is finite only if all of the sum is. `index` must ascend. The entries,
    [k], go to `out` if given. With `erase` they become zero in `total`; `clear` zeroes `added`. On
    CPUs one pass does it all. Raise IndexError for positions that do not ascend or lie outside.
    """
    native = kernels.of(total, added)
    ours = index.is_cpu and index.is_contiguous() and index.dtype == torch.int32
    if native is not None and ours:
        other = NOTHING if added is None else added.numpy()
        values = total.new_empty(index.numel()) if out is None else out
        kernels.require_room("out", values, index.numel())
        most, taken = native.scatter.add_take(
            total.numpy(), other, clear, index.numpy(), erase, values.numpy()
        )
        if taken < index.numel():
            raise IndexError(
                f"positions must ascend in [0, {total.numel()}), got {int(index[taken])}"
            )
        return values, float(np.int32(most).view(np.float32))
    if added is not None:
        total.add_(added)
        if clear:
            added.zero_()
    seen = float(total.sum())
    return take_out_(total, index, erase, out), seen


def take_out_(grad: Tensor, index: Tensor, erase: bool = True, out: Tensor | None = None) -> Tensor:
    """Return `grad` at `index`, both 1-D, in `out` if given; `erase` zeroes it in `grad`."""
    values = grad.new_empty(index.numel()) if out is None else out
    kernels.require_room("out", values, index.numel())
    if (native := kernels.of(grad)) is not None and _fits(index, grad.numel()):
        native.scatter.take(grad.numpy(), index.numpy(), erase, values.numpy())
        return values
    torch.index_select(grad, 0, index, out=values)
    if erase:
        grad.index_fill_(0, index.long(), 0)
    return values


def erase_(x: Tensor, index: Tensor) -> None:
    """Zero `x`, [n], at positions that were found in it."""
    if (native := kernels.of(x)) is not None and _fits(index, x.numel(), torch.int32):
        native.kernels.erase(x.numpy(), index.numpy())
    else:
        x.index_fill_(0, index.long(), 0)


def put_back_(x: Tensor, found: Entries) -> None:
    """Write found entries back to `x`, [n], which is zero there."""
    add_at_(x, found.index, found.values, 1.0)


def _fits(index: Tensor, n: int, *dtypes: torch.dtype) -> bool:
    """Return True if compiled kernels accept these positions: CPU, contiguous, all in [0, n).

    Their type must be one of `dtypes`, by default any type in which positions travel.
    """
    known = index.is_cpu and index.is_contiguous()
    known = known and index.dtype in (dtypes or INDEX_DTYPES.values())
    return known and (not index.numel() or 0 <= int(index.min()) <= int(index.max()) < n)


def sum_(
    total: Tensor, entries: Sequence[tuple[Tensor, ...]], factor: float, is_zero: bool = False
) -> Tensor:
    """Set `total`, [n], to the sum of all (values, index), times `factor`, with 0 elsewhere.

    `is_zero` says that `total` already holds zeros. Raises IndexError for a position outside.
    Nothing is added to a tensor without values.
    """
    if total.is_meta:
        return total
    native, laid = kernels.of(total), [_laid(*pair) for pair in entries]
    if native is None or None in laid:
        if not is_zero:
            total.zero_()
        for values, index in entries:
            add_at_(total, index, values, factor)
        return total
    places, sources, counts = np.array(laid, np.int64).T.copy()
    if not native.scatter.add_all(total.numpy(), places, sources, counts, factor, not is_zero):
        raise IndexError(f"an index is outside a vector of {total.numel()}")
    return total


def mean_of_contributors_(
    total: Tensor, entries: Sequence[tuple[Tensor, ...]], is_zero: bool = False
) -> Tensor:
    """Do `sum_`, and divide each element by its number of `entries`; 0 without any."""
    counts = workspace("contributors", total.numel(), total.dtype, total.device)
    most = max(values.numel() for values, _ in entries)
    one = workspace("ones", most, total.dtype, total.device).fill_(1)
    sum_(counts, [(one[: index.numel()], index) for _, index in entries], 1.0)
    return sum_(total, entries, 1.0, is_zero).div_(counts.clamp_(min=1))


def _laid(values: Tensor, index: Tensor) -> tuple[int, int, int] | None:
    """Return addresses and length of index and values, or None if compiled code cannot read both.

    It reads float32 and int32, on the CPU, contiguous.
    """
    count = values.numel()
    reads = (
        index.numel() == count
        and values.dtype == torch.float32
        and index.dtype == torch.int32
        and values.is_cpu
        and index.is_cpu
        and values.is_contiguous()
        and index.is_contiguous()
    )
    return (index.data_ptr(), values.data_ptr(), count) if reads else None


def add_at_(total: Tensor, index: Tensor, values: Tensor, factor: float) -> None:
    """Add `values` times `factor` to `total` at `index`, both [k]; IndexError outside `total`."""
    native = kernels.of(total)
    alike = values.numel() == index.numel() and values.is_contiguous() and index.is_contiguous()
    if native is None or index.dtype not in INDEX_DTYPES.values() or not alike:
        total.index_add_(0, index, values * factor)
    elif not native.scatter.add(total.numpy(), index.numpy(), values.numpy(), factor):
        raise IndexError(f"an index is outside a vector of {total.numel()}")
