"""Stochastic rounding: to the level below or above, so that the expectation is the value itself."""

import torch
from torch import Tensor

from compressors.counter import uniform


def rounded(x: Tensor, levels: int, key: tuple[int, ...]) -> Tensor:
    """`x`, [n] in [-levels, levels], rounded to an integer, plus `levels`; uint8 [n].

    The numbers drawn follow from `key`. What is NaN becomes any integer.
    """
    noise = uniform(x.numel(), key, x.device)
    return noise.add_(x).floor_().clamp_(-levels, levels).add_(levels).to(torch.uint8)


def add_levels_(total: Tensor, codes: Tensor, levels: int, step: Tensor) -> None:
    """Add what `rounded` made `codes` of, times `step` (it must broadcast), to `total`."""
    total.addcmul_(codes.to(total.dtype).sub_(levels), step)
