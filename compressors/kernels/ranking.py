"""Which of some entries are the k largest, in machine code: by radix, without sorting.

Magnitudes are the bits of |x| as an integer, as in compressors.magnitude.
"""

import numpy as np
from numba import njit

from compressors.kernels.vectors import OPTIONS

MAGNITUDE = 0x7FFFFFFF  # every bit of a float32 but its sign
COARSE, FINE = 11, 10  # bits of a radix level; 11 + 10 + 10 are those of a magnitude


@njit(**OPTIONS)
def _descend(histogram, k):  # type: ignore[no-untyped-def]
    """The bin that holds the k-th largest, and its rank among those of the bin."""
    at = histogram.size - 1
    while histogram[at] < k:
        k -= histogram[at]
        at -= 1
    return at, k


@njit("UniTuple(int64, 2)(float32[::1], int64)", **OPTIONS)
def kth_largest(values, k):  # type: ignore[no-untyped-def]
    """Bits of the k-th largest magnitude, and how many of those equal to it are among the k."""
    keys = values.view(np.int32)
    coarse = np.zeros(1 << COARSE, np.int64)
    for key in keys:
        coarse[(key & np.int32(MAGNITUDE)) >> np.int32(2 * FINE)] += 1
    found, k = _descend(coarse, k)
    for level in (1, 0):
        shift = np.int32(level * FINE)
        fine = np.zeros(1 << FINE, np.int64)
        for key in keys:
            part = (key & np.int32(MAGNITUDE)) >> shift
            if part >> np.int32(FINE) == found:
                fine[part & np.int32((1 << FINE) - 1)] += 1
        within, k = _descend(fine, k)
        found = (found << FINE) | within
    return found, k


@njit("void(int32[::1], float32[::1], int64, int64, int32[::1], float32[::1], int64)", **OPTIONS)
def keep(index, values, kth, ties, kept, kept_values, most):  # type: ignore[no-untyped-def]
    """Positions and values of what exceeds `kth`, and of the first `ties` equal to it.

    They are `most`; `kept` and `kept_values` have one place more at least.
    """
    count = 0
    keys = values.view(np.int32)
    for here in range(index.size):
        if count == most:
            break
        key = keys[here] & np.int32(MAGNITUDE)
        equal = key == kth and ties > 0
        kept[count] = index[here]
        kept_values[count] = values[here]
        count += key > kth or equal
        ties -= equal


@njit("void(int32[::1], int32[::1], int64)", **OPTIONS)
def follow(places, index, count):  # type: ignore[no-untyped-def]
    """The first `count` of `places` become the positions in `index` that they stand for."""
    for here in range(count):
        places[here] = index[places[here]]
