"""Where a vector's largest magnitudes are: exactly k of them, or all above a bound.

Magnitudes are compared as the bits of |x| read as an integer. That is the order of the floats, with
NaN above infinity: a gradient that overflowed is sent and seen, not kept in a residual for ever.
On the CPU this is numpy over chunks that stay in cache; at 25 M elements torch.topk takes 15 times
as long. All positions returned are int64, ascending, and the same on every run.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

CHUNK = 1 << 17  # elements; two chunks of int32 fit in a core's L2 cache
SAMPLE = 16384  # elements; 0.2 ms, and enough that one pass over the vector nearly always suffices
SIGMAS = 4.5  # by which a sampled bound lies below the estimate, so that it is rarely too high
MAGNITUDE = 0x7FFFFFFF  # every bit of a float32 but its sign


def bits(x: Tensor) -> Tensor:
    """|x| of a float32 tensor as int32, in the same order; NaN is above infinity."""
    return x.view(torch.int32).bitwise_and(MAGNITUDE)


def sample(x: Tensor, size: int, start: int = 0) -> Tensor:
    """`bits` of at least min(size, n) elements of `x`, [n], evenly spaced; `start` shifts them.

    The spacing is odd: an even one would see only some columns of a weight matrix.
    """
    stride = max(1, (x.numel() // size - 1) | 1)
    return bits(x[start % stride :: stride])


def above(x: Tensor, bound: int) -> Tensor:
    """Positions in `x`, [n], whose `bits` are greater than `bound`."""
    if x.is_cuda or x.numel() == 0:
        return _where(bits(x) > bound)
    found = [_where_numpy(chunk > bound, first) for first, chunk in _chunks(x)]
    return torch.from_numpy(np.concatenate(found))


def at_least(x: Tensor, threshold: Tensor) -> Tensor:
    """Positions in `x`, [n], of magnitude `threshold`, float32 [], or more, and not zero."""
    return above(x, max(0, int(threshold.view(torch.int32)) - 1))


def largest(x: Tensor, k: int) -> Tensor:
    """Positions of the k largest magnitudes of `x`, [k]; of equal ones those of lowest index.

    A sample bounds the k-th magnitude from below, one pass collects what is above, and only that is
    ranked. A bound that was too high is lowered; at 0, entries above and equal to it are all.
    """
    if x.is_cuda:
        return _largest(bits(x), k)
    drawn = np.sort(sample(x, SAMPLE).numpy())
    expected = drawn.size * k / x.numel()  # of the sample, among the k largest
    reach = expected + SIGMAS * expected**0.5 + 1
    while True:
        bound = int(drawn[-int(reach)]) if reach < drawn.size else 0
        found = above(x, bound)
        missing = k - found.numel()
        if missing <= 0:
            return found.index_select(0, _largest(bits(x.index_select(0, found)), k))
        ties = _first_equal(x, bound, missing)
        if ties.numel() == missing:
            return torch.cat([found, ties]).sort().values
        reach *= 2


def _largest(keys: Tensor, k: int) -> Tensor:
    """Positions of the k largest of `keys`, int32 [n]; of equal ones those of lowest index."""
    if keys.is_cuda:
        kth = keys.topk(k, sorted=False).values.min()
    else:
        rank = keys.numel() - k
        kth = torch.tensor(np.partition(keys.numpy(), rank)[rank])
    kept = keys > kth
    ties = _where(keys == kth)[: k - int(kept.count_nonzero())]
    return _where(kept.index_fill_(0, ties, True))


def _first_equal(x: Tensor, bound: int, count: int) -> Tensor:
    """The first `count` positions, or all there are, where the `bits` of `x` equal `bound`."""
    found: list[np.ndarray] = []
    for first, chunk in _chunks(x):
        found.append(_where_numpy(chunk == bound, first)[:count])
        count -= found[-1].size
        if count == 0:
            break
    return torch.from_numpy(np.concatenate(found))


def _chunks(x: Tensor) -> Iterator[tuple[int, np.ndarray]]:
    """(position of its first element, bits) of every chunk of a CPU tensor; one reused buffer."""
    raw = x.view(torch.int32).numpy()
    buffer = np.empty(min(CHUNK, raw.size), np.int32)
    for first in range(0, raw.size, CHUNK):
        part = raw[first : first + CHUNK]
        yield first, np.bitwise_and(part, np.int32(MAGNITUDE), out=buffer[: part.size])


def _where_numpy(mask: np.ndarray, first: int) -> np.ndarray:
    where = np.flatnonzero(mask)
    where += first
    return where


def _where(mask: Tensor) -> Tensor:
    """Positions of the true elements; numpy finds them twice as fast as torch on the CPU."""
    if mask.is_cuda:
        return mask.nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(mask.numpy()))
