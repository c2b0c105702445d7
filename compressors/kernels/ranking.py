"""Selection of the k largest of some entries in machine code, by radix, without sorting.

Magnitudes are the bits of |x| as an integer, as in compressors.topk_select.
"""

import numpy as np
from numba import njit

from compressors.kernels.native import collect
from compressors.kernels.vectors import OPTIONS, bits_of

MAGNITUDE = np.int32(0x7FFFFFFF)  # mask of a float32's bits without sign
BINS = 4096  # of a histogram; with many, consecutive keys rarely increment the same bin
FEW = 1 << 16  # at most this many candidates are copied, so that later passes read only them


@njit(**OPTIONS)
def _kth(keys, k):  # type: ignore[no-untyped-def]
    """Return the k-th largest of `keys`, float bits, and how many equal to it are among the k."""
    least, most = np.int32(MAGNITUDE), np.int32(0)
    for here in range(keys.size):
        key = np.int32(keys[here] & MAGNITUDE)
        least = key if key < least else least
        most = key if key > most else most
    low, high = np.int64(least), np.int64(most)
    histogram = np.empty(BINS, np.int32)
    while True:
        shift = 0
        while (high - low) >> shift >= BINS:
            shift += 1
        histogram[:] = 0
        for here in range(keys.size):
            key = np.int32(keys[here] & MAGNITUDE)
            if low <= key and key <= high:
                histogram[np.uint64((key - low) >> shift)] += 1
        at = (high - low) >> shift
        while histogram[at] < k:
            k -= histogram[at]
            at -= 1
        low += at << shift
        high = low + (1 << shift) - 1
        if shift == 0:
            return low, k
        if histogram[at] <= FEW:
            inside, count = np.empty(histogram[at], np.int32), 0
            for here in range(keys.size):
                key = keys[here] & MAGNITUDE
                if low <= key and key <= high:
                    inside[count] = key
                    count += 1
            keys = inside


@njit("UniTuple(int64, 2)(float32[::1], int64)", **OPTIONS)
def kth_largest(values, k):  # type: ignore[no-untyped-def]
    """Return the bits of the k-th largest magnitude, and how many equal to it are among the k."""
    return _kth(values.view(np.int32), k)


@njit("int64(float32[::1], float32[::1], int64, int64, int64, int64, int64, int32[::1])", **OPTIONS)
def kth_sampled(x, added, first, every, count, length, k, keys):  # type: ignore[no-untyped-def]
    """Return the bits of the k-th largest magnitude in a sample of `x` or, if given, x + added.

    The sample is `count` runs of `length` elements, from position `first` on, whose starts are
    `every` elements apart. `keys` is memory to work in, with room for the sample.
    """
    for run in range(count):
        begin = first + run * every
        part, own = x[begin : begin + length], keys[run * length : (run + 1) * length]
        if added.size:
            other = added[begin : begin + length]
            for here in range(part.size):
                own[here] = bits_of(np.float32(part[here] + other[here]))
        else:
            for here in range(part.size):
                own[here] = bits_of(part[here])
    return _kth(keys[: count * length], k)[0]


@njit(**OPTIONS)
def _keep(index, values, kth, ties, kept, kept_values, most):  # type: ignore[no-untyped-def]
    """Write entries above `kth`, and the first `ties` equal to it, to `kept` and `kept_values`.

    There are `most` of them. Both outputs need room for one more.
    """
    count = 0
    keys = values.view(np.int32)
    for here in range(index.size):
        if count == most:
            break
        key = keys[here] & MAGNITUDE
        equal = key == kth and ties > 0
        kept[count] = index[here]
        kept_values[count] = values[here]
        count += key > kth or equal
        ties -= equal


@njit("void(int32[::1], float32[::1], int64, boolean, int32[::1], float32[::1])", **OPTIONS)
def largest(index, values, k, compress, kept, kept_values):  # type: ignore[no-untyped-def]
    """Write the k entries of largest magnitude to `kept`, positions, and `kept_values`.

    They stay in their order; of equal magnitudes the first are kept. Both outputs need room for
    BLOCK elements more than k.
    """
    kth, ties = _kth(values.view(np.int32), k)
    _, count = collect(values, np.int32(kth - 1), compress, False, 0, kept, kept_values, 0)
    if count > k:  # surplus entries equal to the k-th
        _keep(index, values, kth, ties, kept, kept_values, k)
        return
    for here in range(k):
        kept[here] = index[np.uint32(kept[here])]
