"""Where a vector's largest magnitudes are: exactly k of them, or all above a bound.

Magnitudes are compared as the bits of |x| read as an integer. That is the order of the floats, with
NaN above infinity: a gradient that overflowed is sent and seen, not kept in a residual for ever.
On the CPU these are compiled kernels or, where there are none, numpy over chunks that stay in
cache; at 25 M elements torch.topk takes 100 or 15 times as long. All positions returned are int64,
ascending, and the same on every run.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from compressors import kernels

CHUNK = 1 << 17  # elements; two chunks of int32 fit in a core's L2 cache
SAMPLE = 16384  # elements; 0.2 ms, and enough that one pass over the vector nearly always suffices
SIGMAS = 4.5  # by which a sampled bound lies below the estimate, so that it is rarely too high
USUAL = 64  # of this many elements one is above a bound; where more are, it takes 2 % longer
MAGNITUDE = 0x7FFFFFFF  # every bit of a float32 but its sign


def bits(x: Tensor) -> Tensor:
    """|x| of a float32 tensor as int32, in the same order; NaN is above infinity."""
    return x.view(torch.int32).bitwise_and(MAGNITUDE)


def sample(x: Tensor, size: int, start: int = 0, added: Tensor | None = None) -> Tensor:
    """`bits` of at least min(size, n) elements of `x`, or of x + added, [n], evenly spaced.

    `start` shifts them.
    """
    some = _spread(x, size, start)
    return bits(x[some] if added is None else x[some] + added[some])


def _spread(x: Tensor, size: int, start: int = 0) -> slice:
    """An odd spacing: an even one would see only some columns of a weight matrix."""
    stride = max(1, (x.numel() // size - 1) | 1)
    return slice(start % stride, None, stride)


def above(x: Tensor, bound: int) -> Tensor:
    """Positions in `x`, [n], whose `bits` are greater than `bound`."""
    if x.is_cuda or x.numel() == 0:
        return _where(bits(x) > bound)
    if (native := kernels.of(x)) is not None:
        index, _ = native.collect(x.numpy(), bound, x.numel() // USUAL)
        return torch.from_numpy(index.astype(np.int64))
    found = [_where_numpy(chunk > bound, first) for first, chunk in _chunks(x)]
    return torch.from_numpy(np.concatenate(found))


def at_least(x: Tensor, threshold: Tensor) -> Tensor:
    """Positions in `x`, [n], of magnitude `threshold`, float32 [], or more, and not zero."""
    return above(x, max(0, int(threshold.view(torch.int32)) - 1))


def add_at_least_(total: Tensor, x: Tensor, threshold: Tensor) -> Tensor:
    """`at_least` of total += x, [n] both; on the CPU `total` is read and written once."""
    native = kernels.of(total)
    if native is None or kernels.of(x) is None:
        return at_least(total.add_(x), threshold)
    bound = max(0, int(threshold.view(torch.int32)) - 1)
    found = native.collect(total.numpy(), bound, total.numel() // USUAL, x.numpy())
    return torch.from_numpy(found.where.astype(np.int64))


def largest(x: Tensor, k: int) -> Tensor:
    """Positions of the k largest magnitudes of `x`, [k]; of equal ones those of lowest index."""
    return _largest(bits(x), k) if x.is_cuda else _search(x, k, None)


def add_largest_(total: Tensor, x: Tensor, k: int) -> Tensor:
    """`largest` of total += x, [n] both; on the CPU `total` is read and written once."""
    if kernels.of(total) is None or kernels.of(x) is None:
        return largest(total.add_(x), k)
    return _search(total, k, x)


def _search(x: Tensor, k: int, added: Tensor | None) -> Tensor:
    """`largest` of x, or of x += added, on the CPU.

    A sample bounds the k-th magnitude from below, one pass collects what is above, and only that is
    ranked. A bound that was too high is lowered; at 0, entries above and equal to it are all.
    """
    drawn = sample(x, SAMPLE, added=added).numpy()
    expected = drawn.size * k / x.numel()  # of the sample, among the k largest
    reach = expected + SIGMAS * expected**0.5 + 1
    while True:
        bound = _from_top(drawn, int(reach))
        found, values = _collect(x, bound, int(reach * x.numel() / drawn.size), added)
        added = None  # it is in x now
        missing = k - found.size
        if missing <= 0:
            return _ranked(found, values, k)
        ties = _first_equal(x, bound, missing)
        if ties.size == missing:
            return torch.from_numpy(np.sort(np.concatenate([found, ties])))
        reach *= 2


def _from_top(drawn: np.ndarray, rank: int) -> int:
    """The element of that rank, 1 for the largest; 0 when there are not more than that."""
    if rank >= drawn.size:
        return 0
    return int(np.partition(drawn, drawn.size - rank)[drawn.size - rank])


def _collect(
    x: Tensor, bound: int, expected: int, added: Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and values in `x`, or in x += added, whose `bits` are greater than `bound`."""
    if (native := kernels.of(x)) is not None:
        return native.collect(x.numpy(), bound, expected, None if added is None else added.numpy())
    found = above(x, bound).numpy()
    return found, x.numpy()[found]


def _ranked(index: np.ndarray, values: np.ndarray, k: int) -> Tensor:
    """Those of `index` with the k largest `values`; of equal ones the first."""
    if (native := kernels.compiled()) is not None and index.dtype == np.int32:
        return torch.from_numpy(native.largest(kernels.Found(index, values), k)[0])
    kept = _largest(bits(torch.from_numpy(values)), k)
    return torch.from_numpy(index[kept.numpy()])


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


def _first_equal(x: Tensor, bound: int, count: int) -> np.ndarray:
    """The first `count` positions, or all there are, where the `bits` of `x` equal `bound`."""
    found: list[np.ndarray] = []
    for first, chunk in _chunks(x):
        found.append(_where_numpy(chunk == bound, first)[:count])
        count -= found[-1].size
        if count == 0:
            break
    return np.concatenate(found)


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
