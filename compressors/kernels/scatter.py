"""Random positions, and reading and adding entries at positions, in machine code."""

from typing import Any

import numpy as np
from numba import carray, njit

from compressors.kernels.vectors import (
    ALIGNMENT,
    CHUNK,
    OPTIONS,
    bits_of,
    copy_past_cache,
    floats_at,
    high_product,
    ints_at,
    ones,
    settle,
    trailing_zeros,
)

WORD: Any = np.uint64
WORD_BITS = 64
BATCH = 256  # positions drawn before they are marked, so that reads of the bitmap overlap
MAGNITUDE = 0x7FFFFFFF  # mask of a float32's bits without sign
FAR = 1 << 22  # elements from which a vector leaves the cache before it is read
AHEAD = 2  # positions written in advance for each word, used or not
STEP, FIRST, SECOND = map(WORD, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@njit(**OPTIONS)
def _position(number, key, n):  # type: ignore[no-untyped-def]
    """Return the position in [0, n) of draw `number`, equal to that of compressors.rng."""
    x = WORD(key + WORD(WORD(number) * STEP))
    x = WORD(WORD(x ^ (x >> WORD(30))) * FIRST)
    x = WORD(WORD(x ^ (x >> WORD(27))) * SECOND)
    return high_product(WORD(x ^ (x >> WORD(31))), n)


@njit("void(int64, int64, uint64, uint64[::1])", **OPTIONS)
def mark(n, count, key, bitmap):  # type: ignore[no-untyped-def]
    """Clear `bitmap`, and set `count` random ones of its first `n` bits."""
    for word in range(bitmap.size):
        bitmap[word] = 0
    drawn = np.empty(BATCH, np.int64)
    number = 0
    while count > 0:
        batch = min(count, BATCH)  # no more than are still missing
        for here in range(batch):
            drawn[here] = _position(number + here, key, WORD(n))
        number += batch
        for here in range(batch):
            word, bit = drawn[here] >> 6, WORD(1) << WORD(drawn[here] & 63)
            known = bitmap[np.uint64(word)]
            bitmap[np.uint64(word)] = known | bit
            count -= (known & bit) == 0


@njit("void(uint64[::1], boolean, int32[::1])", **OPTIONS)
def positions(bitmap, invert, index):  # type: ignore[no-untyped-def]
    """Write the positions of set bits (unset with `invert`) to `index`, at most size - AHEAD."""
    count, room = 0, index.size - AHEAD
    flip = ~WORD(0) if invert else WORD(0)
    for word in range(bitmap.size):
        bits, first = bitmap[word] ^ flip, word * WORD_BITS
        found = min(ones(bits), room - count)
        second = bits & (bits - WORD(1))
        index[count] = first + trailing_zeros(bits | (WORD(1) << WORD(63)))
        index[count + 1] = first + trailing_zeros(second | (WORD(1) << WORD(63)))
        rest = second & (second - WORD(1))
        for more in range(2, found):
            index[count + more] = first + trailing_zeros(rest)
            rest &= rest - WORD(1)
        count += found


@njit(["void(float32[::1], int32[::1], boolean, float32[::1])",
       "void(float32[::1], int64[::1], boolean, float32[::1])"], **OPTIONS)  # fmt: skip
def take(x, index, erase, values):  # type: ignore[no-untyped-def]
    """Copy entries of `x` at `index`, in range, to `values`; `erase` zeroes them in `x`."""
    for here in range(index.size):
        values[here] = x[np.uint64(index[here])]
    if erase:
        for here in range(index.size):
            x[np.uint64(index[here])] = 0


@njit(
    "UniTuple(int64, 2)(float32[::1], float32[::1], boolean, int32[::1], boolean, float32[::1])",
    **OPTIONS,
)
def add_take(total, added, clear, index, erase, values):  # type: ignore[no-untyped-def]
    """Add `added` to `total`, then `take` the entries at `index`, in one pass over both.

    `added` may be empty; `clear` sets it to zero. Return the bits of the sum's largest magnitude,
    and how many entries were taken: not all if a position is outside or out of order.
    """
    most, taken = np.int32(0), 0
    for first in range(0, total.size, CHUNK):
        part, other = total[first : first + CHUNK], added[first : first + CHUNK]
        for here in range(other.size):
            part[here] += other[here]
        for here in range(part.size):
            key = np.int32(bits_of(part[here]) & np.int32(MAGNITUDE))
            most = key if key > most else most
        if clear:
            for here in range(other.size):
                other[here] = 0
        while taken < index.size:
            at = np.uint64(np.int64(index[taken]) - first)
            if at >= np.uint64(part.size):
                break
            values[taken] = part[at]
            if erase:
                part[at] = 0
            taken += 1
    return np.int64(most), taken


@njit(["boolean(float32[::1], int32[::1], float32[::1], float32)",
       "boolean(float32[::1], int64[::1], float32[::1], float32)"], **OPTIONS)  # fmt: skip
def add(total, index, values, factor):  # type: ignore[no-untyped-def]
    """Add `values` times `factor` to `total` at `index`. Return False at the first one outside."""
    for here in range(index.size):
        at = np.uint64(np.int64(index[here]))
        if at >= np.uint64(total.size):
            return False
        total[at] += np.float32(values[here] * factor)
    return True


@njit("boolean(float32[::1], int64[::1], int64[::1], int64[::1], float32)", **OPTIONS)
def fill(total, places, sources, counts, factor):  # type: ignore[no-untyped-def]
    """Write the sum of all workers' entries to `total`, chunk by chunk, past the cache.

    `total` is not read. `places` and `sources` are the addresses of each worker's positions, int32,
    and values. Return False with `total` incomplete if positions return to an earlier chunk, or one
    is outside. Also return False if `total` is not aligned to ALIGNMENT.
    """
    if total.ctypes.data % ALIGNMENT:
        return False
    held, taken = np.zeros(CHUNK, np.float32), np.zeros((2, counts.size), np.int64)
    for first in range(0, total.size, CHUNK):
        part = held[: min(CHUNK, total.size - first)]
        for worker in range(counts.size):
            index = carray(ints_at(places[worker]), (counts[worker],), np.int32)
            values = carray(floats_at(sources[worker]), (counts[worker],), np.float32)
            here = taken[1, worker]
            while here < index.size:
                at = np.uint64(np.int64(index[here]) - first)
                if at >= np.uint64(part.size):
                    break
                part[at] += np.float32(values[here] * factor)
                here += 1
            taken[0, worker], taken[1, worker] = taken[1, worker], here
        if part.size == CHUNK:
            copy_past_cache(part, total, first)  # type: ignore[call-arg]
        else:
            total[first:] = part
        for worker in range(counts.size):
            index = carray(ints_at(places[worker]), (counts[worker],), np.int32)
            for here in range(taken[0, worker], taken[1, worker]):
                part[np.uint64(np.int64(index[here]) - first)] = 0
    settle()  # type: ignore[call-arg]
    return np.all(taken[1] == counts)


@njit("boolean(float32[::1], int64[::1], int64[::1], int64[::1], float32, boolean)", **OPTIONS)
def add_all(total, places, sources, counts, factor, clear):  # type: ignore[no-untyped-def]
    """Add all workers' entries times `factor` to `total`, by rank; `clear` zeroes it before.

    `places`, `sources` and `counts` have each worker's address of positions, int32, address of
    values, and number of entries. Return False if a position is outside `total`.
    """
    if clear:
        if total.size >= FAR and fill(total, places, sources, counts, factor):
            return True
        for here in range(total.size):
            total[here] = 0
    for worker in range(counts.size):
        index = carray(ints_at(places[worker]), (counts[worker],), np.int32)
        values = carray(floats_at(sources[worker]), (counts[worker],), np.float32)
        if not add(total, index, values, factor):
            return False
    return True
