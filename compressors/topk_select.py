"""Positions of a vector's largest magnitudes: exactly k of them, or all above a bound.

Magnitudes are compared as the bits of |x| read as an integer. That is the order of floats, with NaN
above infinity, so an overflowed gradient is sent and seen instead of staying in a residual forever.
On the CPU compiled kernels do the work or, without them, numpy over chunks that stay in cache. At
25 M elements torch.topk takes 100 or 15 times as long. All returned positions are ascending, equal
on every run, and int64 unless stated.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors import kernels
from compressors.kernels import gpu
from compressors.packing import NOTHING
from compressors.workspace import workspace

CHUNK = 1 << 17  # elements; two chunks of int32 fit in a core's L2 cache
RUN = 32  # elements in a row that are sampled together: they cost little more than one of them
SAMPLE = 65536  # elements at most; enough that one pass over the vector nearly always suffices
SAMPLE_ON_GPU = 16384  # elements at most: those of one program's registers
FEWEST, SHARE = 2048, 256  # least sample; one in SHARE elements, cheaper than the pass
SIGMAS = 9.0  # by which a sampled bound lies below the estimate, so that it is rarely too high:
# 4.5, and as much again for the elements of a run, which are not independent
USUAL = 64  # of this many elements one is above a bound; where more are, it takes 2 % longer
LEAST_RANK = 160  # of the threshold in the sample; its count is then good to 1 / sqrt(160) = 8 %
ROUNDING = 1e-15  # of n: 1000 x (1 - 0.9) is 99.99999999999997
MAGNITUDE = 0x7FFFFFFF  # every bit of a float32 but its sign


class Entries(NamedTuple):
    """Some entries of a vector."""

    index: Tensor  # type: ignore[assignment]  # int32 or int64 [k], ascending
    values: Tensor  # float32 [k]

    @staticmethod
    def none(x: Tensor) -> "Entries":
        return Entries(x.new_empty(0, dtype=torch.int32), x.new_empty(0))


def bits(x: Tensor) -> Tensor:
    """Return |x| of a float32 tensor as int32, in the same order. NaN is above infinity."""
    return x.view(torch.int32).bitwise_and(MAGNITUDE)


class Runs(NamedTuple):
    """A sample of a vector: evenly spaced runs of adjacent elements."""

    first: int  # element of the first run
    every: int  # elements from one run to the next
    runs: int
    length: int  # elements of a run

    @property
    def size(self) -> int:
        return self.runs * self.length


def runs(n: int, size: int, start: int = 0) -> Runs:
    """Plan a sample of min(size, n) of n elements or more, in runs of RUN with odd spacing.

    An even spacing would see only some columns of a weight matrix. `start` shifts the runs.
    """
    spacing = max(1, (n // (RUN * -(-size // RUN)) - 1) | 1)
    if spacing == 1:
        return Runs(0, max(1, n), 1, n)
    first, every = RUN * (start % spacing), RUN * spacing
    return Runs(first, every, (n - first - RUN) // every + 1, RUN)


def sample(x: Tensor, where: Runs, added: Tensor | None = None) -> Tensor:
    """Return `bits` of a sample of `x`, or of x + added, [n], in this thread's memory."""
    first, every, _, length = where
    parts = [part[first:].unfold(0, length, every) for part in (x, added) if part is not None]
    drawn = workspace("sample", where.size, x.dtype, x.device).view(parts[0].shape)
    if added is None:
        drawn.copy_(parts[0])
    else:
        torch.add(*parts, out=drawn)
    return drawn.flatten().view(torch.int32).bitwise_and_(MAGNITUDE)


def kth_sampled(x: Tensor, where: Runs, k: int, added: Tensor | None = None) -> int:
    """Return the `kth_largest` of a `sample`."""
    native = kernels.of(x, added)
    if native is None:
        return kth_largest(sample(x, where, added).view(torch.float32), k)
    keys = workspace("sample", where.size, torch.int32, x.device)
    other = NOTHING if added is None else added.numpy()
    return native.ranking.kth_sampled(x.numpy(), other, *where, k, keys.numpy())


def estimate(
    x: Tensor, density: float, size: int, start: int, added: Tensor | None = None
) -> Tensor:
    """Return the magnitude, float32 [], that a share `density` of a sample of `x` exceeds.

    The sample is `size` of the n elements of `x`, or of x + added. `start` shifts it.
    """
    where = runs(x.numel(), size, start)
    rank = max(1, int(density * where.size))
    if x.is_cuda:  # the host need not know, nor wait
        return sample(x, where, added).topk(rank).values[-1].view(torch.float32)
    kth = kth_sampled(x, where, rank, added)
    return torch.tensor(kth, dtype=torch.int32).view(torch.float32)


def kth_largest(x: Tensor, k: int) -> int:
    """Return the bits of the k-th largest magnitude of `x`, [n], in three passes over it."""
    _require_entries(x, k)
    if x.is_cuda:
        return int(bits(_search_on_gpu(x, k).values).min())
    if (native := kernels.of(x)) is not None:
        return int(native.ranking.kth_largest(x.numpy(), k)[0])
    rank = x.numel() - k
    return int(np.partition(bits(x).numpy(), rank)[rank])


def reached_by(x: Tensor, k: int) -> Tensor:
    """Return the k-th largest magnitude of `x`, [n], float32 []. If n < k, the smallest, or 0."""
    if x.numel() == 0:
        return x.new_zeros(())
    k = min(k, x.numel())
    if x.is_cuda:
        return bits(_search_on_gpu(x, k).values).min().view(torch.float32)
    return bits(torch.from_numpy(_search(x, k).values)).min().view(torch.float32)


def kept(n: int, density: float) -> int:
    """Return n - floor(n (1 - density)), at least 1: entries that reach a density's threshold."""
    return max(1, n - int(n * (1 - density + ROUNDING)))


def reached_at(x: Tensor, density: float) -> Tensor:
    """Return the magnitude, float32 [], that `kept` entries of `x`, [n], reach."""
    return reached_by(x, kept(x.numel(), density))


def above(x: Tensor, bound: int) -> Tensor:
    """Return positions in `x`, [n], whose `bits` are greater than `bound`."""
    if x.is_cuda or x.numel() == 0:
        return _where(bits(x) > bound)
    if (native := kernels.of(x)) is not None:
        index, _ = native.collect(x.numpy(), bound, x.numel() // USUAL)
        return torch.from_numpy(index.astype(np.int64))
    found = [_where_numpy(chunk > bound, first) for first, chunk in _chunks(x)]
    return torch.from_numpy(np.concatenate(found))


def at_least(x: Tensor, threshold: Tensor) -> Tensor:
    """Return positions in `x`, [n], of nonzero magnitudes >= `threshold`, float32 []."""
    return above(x, max(0, int(threshold.view(torch.int32)) - 1))


def add_reaching_(
    total: Tensor,
    threshold: Tensor,
    added: Tensor | None = None,
    clear: bool = False,
    known: Entries | None = None,
    first: int = 0,
    erase: bool = False,
) -> Entries:
    """Return the entries of `total`, or of total += added, that reach a threshold, from `first` on.

    They follow the `known` entries of earlier positions. `clear` zeroes `added`, and `erase` zeroes
    the entries. On the CPU it is one pass. The thread's next search overwrites the result.
    """
    rest = slice(first, None)
    native = kernels.of(total, added)
    if native is None:
        if added is not None:
            total[rest].add_(added[rest])
            if clear:
                added[rest].zero_()
        index = at_least(total[rest], threshold).add_(first)
        found = Entries(index, total.index_select(0, index))
        if erase:
            total.index_fill_(0, index, 0)
        if known is None:
            return found
        return Entries(*map(torch.cat, zip(known, found, strict=True)))
    bound = max(0, int(threshold.view(torch.int32)) - 1)
    count = 0 if known is None else known.values.numel()
    other, expected = None if added is None else added.numpy(), (total.numel() - first) // USUAL
    where = native.collect(total.numpy(), bound, expected, other, clear, erase, first, count)
    return Entries(*map(torch.from_numpy, where))


def some(found: Entries, which: Tensor) -> Entries:
    """Copy the entries of `found` at the indices `which`."""
    return Entries(found.index.index_select(0, which), found.values.index_select(0, which))


def largest(x: Tensor, k: int) -> Tensor:
    """Return positions of the k largest magnitudes of `x`, [k]. Of equals the lowest index wins."""
    if x.is_meta:  # a replay: nothing but the size is known
        return x.new_empty(k, dtype=torch.int64)
    if x.is_cuda:
        return _search_on_gpu(x, k).index.long()
    return torch.from_numpy(_search(x, k).where.astype(np.int64))


def largest_of(found: Entries, k: int) -> Entries:
    """Return the k largest of `found`. Both may lie in this thread's memory."""
    if found.values.is_cuda:
        return some(found, largest(found.values, k))
    kept = _ranked(kernels.Found(*(part.numpy() for part in found)), k)
    return Entries(*map(torch.from_numpy, kept))


def take_largest_(x: Tensor, k: int, added: Tensor | None = None, clear: bool = False) -> Entries:
    """Take the k largest entries out of `x`, [n], or of x += added, and zero `x` there.

    `clear` zeroes `added` too. On the CPU it is one pass over each. The result lies in this
    thread's memory until the next search.
    """
    native = kernels.of(x)
    if x.is_cuda:
        found_there = _search_on_gpu(x, k, added, erase=True)
        if added is not None and clear:
            added.zero_()
        return found_there
    if added is not None and kernels.of(x, added) is None:
        x.add_(added)
        if clear:
            added.zero_()
        added = None
    if native is None:
        index = largest(x, k)
        values = x.index_select(0, index)
        x.index_fill_(0, index, 0)
        return Entries(index, values)
    found = _search(x, k, added, clear)
    native.kernels.erase(x.numpy(), found.where)
    return Entries(*map(torch.from_numpy, found))


def more_than(x: Tensor, k: int) -> tuple[Entries, int]:
    """Return all entries of `x`, [n], whose `bits` exceed a bound, and the bound.

    There are more than k of them, unless the bound is 0. They lie in this thread's memory.
    """
    if x.is_cuda and (candidates := _candidates(x, k + 1)) is not None:
        entries, least = candidates
        return entries, max(0, int(least.view(torch.int32)) - 1)
    where = _bounding(x.numel())
    reach = _reach(where, k + 1, x.numel())
    while True:
        bound = _bound(x, where, int(reach))
        found = _collect(x.cpu(), bound, int(reach * x.numel() / where.size), None, False)
        if found.where.size > k or bound == 0:
            return Entries(*(torch.from_numpy(part).to(x.device) for part in found)), bound
        reach *= 2


def _search(x: Tensor, k: int, added: Tensor | None = None, clear: bool = False) -> kernels.Found:
    """Return positions and values of the k largest magnitudes of x, on the CPU.

    Add `added` to x first, if given; `clear` zeroes it. A sample bounds the k-th magnitude from
    below. One pass collects the entries above the bound, and only these are ranked. If they are
    fewer than k, the first entries equal to the bound are added, or a lower bound is tried.
    """
    _require_entries(x, k)
    where = _bounding(x.numel())
    reach = _reach(where, k, x.numel())
    while True:
        bound = _bound(x, where, int(reach), added)
        found = _collect(x, bound, int(reach * x.numel() / where.size), added, clear)
        added = None  # it is in x now
        missing = k - found.where.size
        if missing <= 0:
            return _ranked(found, k)
        ties = _first_equal(x, bound, missing)
        if ties.size == missing:
            both = np.sort(np.concatenate([found.where, ties.astype(np.int32)]))
            return kernels.Found(both, x.numpy()[both])
        reach *= 2


def _require_entries(x: Tensor, k: int) -> None:
    """Raise ValueError unless `x`, [n], has `k` >= 1 entries."""
    if not 1 <= k <= x.numel():
        raise ValueError(f"k must be in [1, {x.numel()}], got {k}")


def _search_on_gpu(x: Tensor, k: int, added: Tensor | None = None, erase: bool = False) -> Entries:
    """Return the k largest magnitudes of x, or x += added, and positions; `erase` zeroes them."""
    if gpu.loops() is not None and 0 < k <= x.numel() < gpu.INDEX_END:
        return Entries(*gpu.take_largest_(x, k, _sample_on_gpu(x.numel(), k), added, erase))
    if added is not None:
        x.add_(added)
    index = _largest(bits(x), k)
    values = x.index_select(0, index)
    if erase:
        x.index_fill_(0, index, 0)
    return Entries(index.int(), values)


def _sample_on_gpu(n: int, k: int) -> gpu.Sample:
    """Plan the sample that bounds the k-th largest of n from below. It is empty for a large k."""
    spacing = -(-n // SAMPLE_ON_GPU) | 1
    where = Runs(0, RUN * spacing, max(0, (n - RUN) // (RUN * spacing) + 1), RUN)
    rank = int(_reach(where, k, n))
    if 2 * rank >= where.size:
        return gpu.Sample(0, 0, 0, 0)
    return gpu.Sample(where.runs, where.every, rank, min(n, 2 * n * rank // where.size))


def _candidates(x: Tensor, k: int) -> tuple[Entries, Tensor] | None:
    """Return at least k entries of x, on a GPU, above a magnitude, float32 [].

    Return None if a sample bounds nothing, or bounded badly.
    """
    n = x.numel()
    where = _bounding(n)
    rank = int(_reach(where, k, n))
    if rank >= where.size // 2:
        return None
    least = sample(x, where).topk(rank).values[-1].view(torch.float32)
    selected = gpu.select_(x, least, min(n, 2 * n * rank // where.size), erase=False)
    passed = int(selected.passed)
    if not k <= passed <= selected.values.numel():
        return None
    return Entries(selected.where[:passed], selected.values[:passed]), least


def _bounding(n: int) -> Runs:
    return runs(n, min(SAMPLE, max(FEWEST, n // SHARE)))


def _reach(where: Runs, k: int, n: int) -> float:
    """Return the rank in the sample below which, almost surely, none of the k largest of n is."""
    expected = where.size * k / n
    return expected + SIGMAS * expected**0.5 + 1


def _bound(x: Tensor, where: Runs, rank: int, added: Tensor | None = None) -> int:
    """Return the bits at `rank` (1 is the largest) in a sample, or 0 if it is too small."""
    return 0 if rank >= where.size else kth_sampled(x, where, rank, added)


def _collect(
    x: Tensor, bound: int, expected: int, added: Tensor | None, clear: bool
) -> kernels.Found:
    """Return entries of `x`, or of x += added, whose `bits` exceed `bound`."""
    if (native := kernels.of(x)) is not None:
        other = None if added is None else added.numpy()
        return native.collect(x.numpy(), bound, expected, other, clear)
    found = above(x, bound).numpy()
    return kernels.Found(found, x.numpy()[found])


def _ranked(found: kernels.Found, k: int) -> kernels.Found:
    """Return the k largest entries of `found`. The first of equals wins."""
    if (native := kernels.compiled()) is not None and found.where.dtype == np.int32:
        return native.largest(found, k)
    kept = _largest(bits(torch.from_numpy(found.values)), k).numpy()
    return kernels.Found(found.where[kept], found.values[kept])


def _largest(keys: Tensor, k: int) -> Tensor:
    """Return positions of the k largest of `keys`, int32 [n]. Of equals the lowest index wins."""
    if keys.is_cuda:
        return keys.sort(descending=True, stable=True).indices[:k].sort().values
    rank = keys.numel() - k
    kth = torch.tensor(np.partition(keys.numpy(), rank)[rank])
    kept = keys > kth
    ties = _where(keys == kth)[: k - int(kept.count_nonzero())]
    return _where(kept.index_fill_(0, ties, True))


def _first_equal(x: Tensor, bound: int, count: int) -> np.ndarray:
    """Return the first `count` positions, or all, where the `bits` of `x` equal `bound`."""
    found: list[np.ndarray] = []
    for first, chunk in _chunks(x):
        found.append(_where_numpy(chunk == bound, first)[:count])
        count -= found[-1].size
        if count == 0:
            break
    return np.concatenate(found)


def _chunks(x: Tensor) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (position of its first element, bits) of every chunk of a CPU tensor, in one buffer."""
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
    """Return positions of true elements. On the CPU numpy finds them twice as fast as torch."""
    if mask.is_cuda:
        return mask.nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(mask.numpy()))
