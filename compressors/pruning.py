"""Magnitude pruning: zero a gradient where its weights are smallest."""

import numpy as np
import torch
from torch import Tensor

from compressors.topk_select import CHUNK, MAGNITUDE, bits, kth_largest


def prune_(grad: Tensor, weights: Tensor, share: float) -> None:
    """Zero `grad` at the floor(share n) smallest magnitudes of `weights`, [n].

    Among equal magnitudes the highest indices are pruned. NaN and infinity in `grad` become NaN.
    """
    keep = weights.numel() - int(share * weights.numel())
    if keep == weights.numel():
        return
    kth = kth_largest(weights, keep)
    surplus = multiply_(grad, weights, kth) - keep
    if surplus:
        equal = (bits(weights) == kth).nonzero().flatten()
        grad[equal[len(equal) - surplus :]] *= 0


def multiply_(grad: Tensor, weights: Tensor, least: int) -> int:
    """Multiply `grad` with the mask of weights whose `bits` reach `least`. Return the mask's count.

    On the CPU it works in chunks that stay in cache.
    """
    if grad.is_cuda:
        there = bits(weights) >= least
        grad.mul_(there)
        return int(there.count_nonzero())
    values, raw, count = grad.numpy(), weights.view(torch.int32).numpy(), 0
    factors = np.empty(min(CHUNK, values.size), np.float32)
    for first in range(0, values.size, CHUNK):
        part = values[first : first + CHUNK]
        kept, factor = (raw[first : first + CHUNK] & MAGNITUDE) >= least, factors[: part.size]
        np.copyto(factor, kept)
        with np.errstate(invalid="ignore"):  # infinity times zero
            np.multiply(part, factor, out=part)
        count += int(np.count_nonzero(kept))
    return count
