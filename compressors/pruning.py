"""Magnitude pruning: a gradient is set to zero where its weights are smallest.

On the CPU numpy over chunks that stay in cache: two passes over the weights and one over the
gradient.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from compressors.magnitude import CHUNK, MAGNITUDE, SAMPLE, SIGMAS, bits, sample


def prune_(grad: Tensor, weights: Tensor, share: float) -> None:
    """Set `grad`, [n], to zero where the floor(share n) smallest magnitudes of `weights`, [n], are.

    Of equal magnitudes those of highest index are pruned. NaN and infinity in `grad` become NaN.
    """
    keep = weights.numel() - int(share * weights.numel())
    if keep == weights.numel():
        return
    kth = kth_largest(weights, keep)
    surplus = _multiply_(grad, weights, kth) - keep
    if surplus:
        equal = (bits(weights) == kth).nonzero().flatten()
        grad[equal[len(equal) - surplus :]] *= 0


def kth_largest(x: Tensor, k: int) -> int:
    """The bits of the k-th largest magnitude of `x`, [n]; a sample says between which it lies."""
    if x.is_cuda:
        return int(bits(x).kthvalue(x.numel() - k + 1).values)
    low, high = _around(x, k)
    above, between = 0, []
    for _, keys in _chunks(x):
        above += int(np.count_nonzero(keys > high))
        between.append(keys[(keys >= low) & (keys <= high)])
    found, rank = np.concatenate(between), k - above
    if not 0 < rank <= found.size:
        found, rank = bits(x).numpy(), k
    return int(np.partition(found, found.size - rank)[found.size - rank])


def _around(x: Tensor, k: int) -> tuple[int, int]:
    """Bits that the k-th largest magnitude of `x` is between, but for once in 100 000 times."""
    drawn = np.sort(sample(x, SAMPLE).numpy())
    share = k / x.numel()
    margin = SIGMAS * (drawn.size * share * (1 - share)) ** 0.5 + 1
    place = drawn.size - drawn.size * share
    low, high = int(place - margin), int(place + margin)
    last = drawn.size - 1
    return (int(drawn[low]) if low >= 0 else 0, int(drawn[high]) if high <= last else MAGNITUDE)


def _multiply_(grad: Tensor, weights: Tensor, kth: int) -> int:
    """Multiply `grad` with whether the weight's `bits` are `kth` or more; how many of them are."""
    if grad.is_cuda:
        there = bits(weights) >= kth
        grad.mul_(there)
        return int(there.count_nonzero())
    values, count = grad.numpy(), 0
    factors = np.empty(min(CHUNK, values.size), np.float32)
    for first, keys in _chunks(weights):
        kept, factor = keys >= kth, factors[: keys.size]
        np.copyto(factor, kept)
        part = values[first : first + keys.size]
        with np.errstate(invalid="ignore"):  # infinity times zero
            np.multiply(part, factor, out=part)
        count += int(np.count_nonzero(kept))
    return count


def _chunks(x: Tensor) -> Iterator[tuple[int, np.ndarray]]:
    """(position of its first element, bits) of every chunk of a CPU tensor; one reused buffer."""
    raw = x.view(torch.int32).numpy()
    buffer = np.empty(min(CHUNK, raw.size), np.int32)
    for first in range(0, raw.size, CHUNK):
        part = raw[first : first + CHUNK]
        yield first, np.bitwise_and(part, np.int32(MAGNITUDE), out=buffer[: part.size])
