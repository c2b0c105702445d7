"""Exchange of sparse vectors: values with their positions, gathered, added up and averaged."""

import torch
from torch import Tensor

from compressors.base import Workers

INDEX_DTYPES = {"int32": torch.int32, "int64": torch.int64}


def index_dtype(name: str) -> torch.dtype:
    """The type positions travel as; raises ValueError for a name that is not in INDEX_DTYPES."""
    if name not in INDEX_DTYPES:
        allowed = " or ".join(INDEX_DTYPES)
        raise ValueError(f"index_dtype must be {allowed}, got {name!r}")
    return INDEX_DTYPES[name]


def take_out_(grad: Tensor, index: Tensor) -> Tensor:
    """The values of `grad`, [n], at `index`, int64 [k]; they are set to zero in `grad`."""
    values = grad.index_select(0, index)
    grad.index_fill_(0, index, 0)
    return values


def average(
    values: Tensor,
    index: Tensor,
    n: int,
    workers: Workers,
    out: Tensor | None = None,
    is_zero: bool = False,
) -> Tensor:
    """Mean over workers, [n], of the vectors that hold `values` [k] at `index` [k], 0 elsewhere.

    It is written to `out`, [n], where that is given; `is_zero` says that this holds zeros already.
    k may differ between workers; each contributes k (4 + bytes of an index) to an all-gather. All
    workers add in the order of the ranks, so that their results have equal bits. The indices of one
    worker must be distinct for that to hold on a GPU too.
    """
    gathered = workers.all_gather(values, index)
    mean = values.new_zeros(n) if out is None else out if is_zero else out.zero_()
    for part, where in gathered:
        mean.index_add_(0, where, part, alpha=1 / workers.size)
    return mean
