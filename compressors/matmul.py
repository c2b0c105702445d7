"""Products of a matrix with thin factors, which read the matrix as few times as possible.

Factors of a matrix [n, m] are left [r, n] and right [r, m], and left^T right approximates it. On
the CPU compiled kernels process SIDE rows at a time. On other devices, and above MOST_RANK, torch
does it. For torch, factors with r rows are two to five times as fast as with r columns.
"""

from typing import Any

import torch
from torch import Tensor

from compressors import kernels

MOST_RANK = 8  # of the compiled kernels; they read rows once for every SIDE ranks
SIDE = 4  # of them together


def left_factor_(
    matrix: Tensor, right: Tensor, added: Tensor | None = None, subtract: bool = False
) -> Tensor:
    """Add `added` to `matrix`. Return `right` matrix^T, [r, n]; `subtract` removes left^T right."""
    if (native := _compiled(matrix, None, right, added)) is None:
        if added is not None:
            matrix.add_(added)
        left = right.mm(matrix.t())
        if subtract:
            matrix.addmm_(left.t(), right, alpha=-1)
        return left
    other = matrix if added is None else added
    padded = _padded(right)
    left = right.new_empty(padded.shape[0], matrix.shape[0])
    views = [x.numpy() for x in (matrix, other, padded, left)]
    native.left_of(views[0], views[1], added is not None, views[2], views[3], subtract)
    return left[: right.shape[0]]


def right_factor_(matrix: Tensor, left: Tensor, added: Tensor | None = None) -> Tensor:
    """Add `added` to `matrix`, and return `left` matrix, [r, m]."""
    if (native := _compiled(matrix, left, None, added)) is None:
        return left.mm(matrix if added is None else matrix.add_(added))
    other = matrix if added is None else added
    padded = _padded(left)
    right = left.new_empty(padded.shape[0], matrix.shape[1])
    views = [x.numpy() for x in (matrix, other, padded, right)]
    native.right_of(views[0], views[1], added is not None, views[2], views[3])
    return right[: left.shape[0]]


def subtract_(matrix: Tensor, left: Tensor, right: Tensor) -> None:
    """Subtract left^T right from `matrix`, in place."""
    if (native := _compiled(matrix, left, right)) is None:
        matrix.addmm_(left.t(), right, alpha=-1)
        return
    native.subtract(*(x.numpy() for x in (matrix, _padded(left), _padded(right))))


def multiply_(out: Tensor, left: Tensor, right: Tensor, matrix: Tensor | None = None) -> None:
    """Set `out`, [n, m], to left^T right, and subtract it from `matrix` if one is given."""
    if (native := _compiled(out, left, right, matrix)) is None:
        torch.mm(left.t(), right, out=out)
        if matrix is not None:
            matrix.sub_(out)
        return
    other = out if matrix is None else matrix
    views = [x.numpy() for x in (out, _padded(left), _padded(right), other)]
    native.product(*views, matrix is not None)


def _compiled(
    matrix: Tensor, left: Tensor | None, right: Tensor | None, other: Tensor | None = None
) -> Any:
    """Return the module of kernels if they handle these tensors and are faster, else None.

    Raises ValueError unless `left`, [r, n], and `right`, [r, m], fit `matrix` and `other`, [n, m].
    """
    for side, factor in enumerate((left, right)):
        if factor is not None and factor.shape[1] != matrix.shape[side]:
            told = f"{list(factor.shape)} does not fit a matrix {list(matrix.shape)}"
            raise ValueError(f"{('left', 'right')[side]} factor {told}")
    native = kernels.of(matrix, other)
    most = max(factor.shape[0] for factor in (left, right) if factor is not None)
    return None if native is None or most > MOST_RANK else native.lowrank


def _padded(factor: Tensor) -> Tensor:
    """Return `factor`, [r, n], contiguous, padded with zero rows to a multiple of SIDE."""
    missing = -factor.shape[0] % SIDE
    if missing:
        factor = torch.cat([factor, factor.new_zeros(missing, factor.shape[1])])
    return factor.contiguous()
