"""Entries at given positions in machine code: drawn, taken out, and added up."""

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
BATCH = 256  # positions drawn before they are marked: reads of the bitmap then overlap
MAGNITUDE = 0x7FFFFFFF  # every bit of a float32 but its sign
FAR = 1 << 22  # elements of a vector that no cache holds until it is read
AHEAD = 2  # places written whether they are used or not
STEP, FIRST, SECOND = map(WORD, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@njit(**OPTIONS)
def _position(number, key, n):  # type: ignore[no-untyped-def]
    """Position in [0, n) of draw `number`, equal to compressors.rng's."""
    x = WORD(key + WORD(WORD(number) * STEP))
    x = WORD(WORD(x ^ (x >> WORD(30))) * FIRST)
    x = WORD(WORD(x ^ (x >> WORD(27))) * SECOND)
    return high_product(WORD(x ^ (x >> WORD(31))), n)


@njit("void(int64, int64, uint64, uint64[::1])", **OPTIONS)
def mark(n, count, key, bitmap):  # type: ignore[no-untyped-def]
    """Set `count` bits among the first `n` of `bitmap`, which is cleared before."""
    for word in range(bitmap.size):
        bitmap[word] = 0
    drawn = np.empty(BATCH, np.int64)
    number = 0
    while count > 0:
        batch = min(count, BATCH)  # never more than are missing
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
    """Write positions of set bits (unset with `invert`) to `index`, up to AHEAD before its end."""
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
    """The entries of `x` at `index`, which must be in range, into `values`; `erase` zeroes them."""
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
    """Total += added, then `take` at `index`, in one pass over both.

    `added` may be empty; `clear` sets it to zero. Returns the bits of the sum's largest magnitude,
    and how many were taken: fewer than all if positions do not ascend, or one is outside.
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
    """Add values times `factor` at `index`; ends, with False, at a position outside `total`."""
    for here in range(index.size):
        at = np.uint64(np.int64(index[here]))
        if at >= np.uint64(total.size):
            return False
        total[at] += np.float32(values[here] * factor)
    return True


@njit("boolean(float32[::1], int64[::1], int64[::1], int64[::1], float32)", **OPTIONS)
def fill(total, places, sources, counts, factor):  # type: ignore[no-untyped-def]
    """Write the sum of the sources to `total` without reading it, chunk by chunk, past the cache.

    False, and `total` is not done, if a worker's positions go back to an earlier chunk, or one is
    outside, or `total` does not begin at a multiple of ALIGNMENT.
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
    """`add`, worker after worker; `clear` sets `total` to zero before.

    Of each worker: the address of its positions, int32, and of its values, and how many there are.
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
