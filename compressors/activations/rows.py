"""The row mask of DCT-MP (Gupta et al., 2021, Algorithm 2): the largest entries of each row.

The threshold of a row of d entries is the magnitude at index floor(eta d) in ascending order, where
eta = 1 - density. So d - floor(eta d) entries reach it, and more if some are equal. Unlike the
paper we never select zeros. After a rectifier they are half of a row or more, the paper's test
would keep them all, and they carry nothing. Magnitudes are compared as bits, so NaN is the largest
and reaches the other side.
"""

from math import isfinite

import numpy as np
import torch
from torch import Tensor

from compressors.topk_select import bits, kept


def check_density(density: float) -> None:
    """Raise ValueError unless `density`, the kept share of a row, is a number in (0, 1]."""
    known = isinstance(density, int | float) and not isinstance(density, bool)
    if not (known and isfinite(density) and 0 < density <= 1):
        raise ValueError(f"density must be a number in (0, 1], got {density!r}")


def row_mask(rows: Tensor, density: float) -> Tensor:
    """Return the mask of the largest `density` d entries of every row of `rows`, float32 [rows, d].

    The mask is bool [rows, d]. Density 1 selects all entries except zeros.
    """
    keys = bits(rows)
    place = _place(keys, density)
    if place == 0 or not keys.numel():
        return keys > 0
    return keys >= _at(keys, place).clamp_(min=1)


def row_thresholds(rows: Tensor, density: float) -> Tensor:
    """Return the magnitudes, float32 [rows], that the largest `density` d of each row reach."""
    keys = bits(rows)
    return _at(keys, _place(keys, density)).view(torch.float32).flatten()


def _place(keys: Tensor, density: float) -> int:
    """Return the number of entries of each row of `keys`, [rows, d], below the threshold."""
    d = keys.shape[1]
    return d - kept(d, density)


def _at(keys: Tensor, place: int) -> Tensor:
    """Return the key at index `place` of every row in ascending order, [rows, 1]."""
    if keys.is_cuda:
        return keys.kthvalue(place + 1, dim=1, keepdim=True).values
    ordered = np.partition(keys.numpy(), place, axis=1)
    return torch.from_numpy(ordered[:, place : place + 1].copy())


def entries(rows: Tensor, mask: Tensor) -> Tensor:
    """Return the values of `rows` where `mask` is set, [k], row by row."""
    if rows.is_cuda:
        return rows[mask]
    where = np.flatnonzero(mask.numpy())
    return rows.reshape(-1).index_select(0, torch.from_numpy(where))


def spread(values: Tensor, mask: Tensor) -> Tensor:
    """Return `values`, [k], at the set entries of `mask`, [rows, d], with zeros elsewhere."""
    rows = values.new_zeros(mask.shape)
    if rows.is_cuda:
        rows[mask] = values
        return rows
    where = torch.from_numpy(np.flatnonzero(mask.numpy()))
    rows.view(-1).index_copy_(0, where, values)
    return rows
