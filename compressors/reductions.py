"""Sums over millions of elements, exact to 1e-6: rows in float32, and their sums in float64.

float32 alone loses two digits over 10 M elements, and float64 throughout takes 30 times as long.
"""

import torch
from torch import Tensor

ROW = 4096  # elements


def mean(x: Tensor) -> float:
    """Return the mean of `x`, float32 [n]."""
    return sum(float(rows.sum(1).sum(dtype=torch.float64)) for rows in _rows(x)) / x.numel()


def mean_square(x: Tensor) -> float:
    """Return the mean square of `x`, float32 [n], which is infinite if elements exceed 1e17."""
    norms = [torch.linalg.vector_norm(rows, dim=1).double() for rows in _rows(x)]
    return float(torch.cat(norms).square().sum()) / x.numel()


def mean_magnitude(x: Tensor) -> float:
    """Return the mean magnitude of `x`, float32 [n]."""
    norms = [torch.linalg.vector_norm(rows, 1, dim=1) for rows in _rows(x)]
    return float(torch.cat(norms).sum(dtype=torch.float64)) / x.numel()


def _rows(x: Tensor) -> list[Tensor]:
    """Return `x` as one matrix of full rows and one with the rest, if any."""
    whole = x.numel() - x.numel() % ROW
    return [part for part in (x[:whole].view(-1, ROW), x[whole:].view(1, -1)) if part.numel()]
