"""Selection of the largest magnitudes of every chunk of a bucket, in machine code.

A chunk is h x w adjacent elements of a matrix, as compressors.chunks lays them out. A layout, int64
[parameters, 6], has a row per parameter. Its columns are the first element, h, w, the length of a
row of the matrix, chunks per row, and rows of chunks.

Magnitudes are the bits of |x| as an integer, as in compressors.topk_select. Memory is read once, in
long lines. Some rows of a chunk give a bound that its largest elements exceed. Elements above the
bound are collected, and only these are ranked.
"""

from typing import Any

import numpy as np
from numba import njit

from compressors.kernels.native import add_block, clear_block, collect, exceeding
from compressors.kernels.vectors import BLOCK, BYTE, OPTIONS, bits_of, ones, trailing_zeros

MAGNITUDE = np.int32(0x7FFFFFFF)  # mask of a float32's bits without sign
MOST = 4096  # elements of the largest chunk
GROUPS = 4  # per wanted entry, so that few unwanted entries reach the bound
PANEL = 64  # chunks side by side that are added together, to read memory in long lines
ROOM = MOST + BLOCK  # entries collected of a chunk
SAMPLED = 4  # rows of a chunk that give its bound
SIGMAS = 2.0  # margin of a sampled bound below its estimate
AT_ONCE = 4  # entries of a line that are collected without counting them first
LAST = np.uint64(1 << 63)
SPARE = 8  # up to k / SPARE unwanted entries may reach a bound; they are ranked
WHOLE: Any = np.int32  # keeps every sum at 32 bits


@njit(**OPTIONS)
def _add(total, added, clear):  # type: ignore[no-untyped-def]
    for here in range(total.size):
        total[here] += added[here]
    if clear:
        for here in range(total.size):
            added[here] = 0


@njit(**OPTIONS)
def _copy(source, into):  # type: ignore[no-untyped-def]
    for here in range(into.size):
        into[here] = source[here]


@njit(**OPTIONS)
def _maxima(values, keys):  # type: ignore[no-untyped-def]
    """Write largest magnitude bits to `keys`; group j has every keys.size-th value from j on."""
    for here in range(keys.size):
        keys[here] = np.int32(bits_of(values[here]) & MAGNITUDE)
    for first in range(keys.size, values.size, keys.size):
        part = values[first : first + keys.size]
        own = keys[: part.size]
        for here in range(part.size):
            key = np.int32(bits_of(part[here]) & MAGNITUDE)
            own[here] = key if key > own[here] else own[here]


@njit(**OPTIONS)
def _reached(keys, k, most):  # type: ignore[no-untyped-def]
    """Return a bound that at least k of `keys` reach, and how many reach it.

    At most `most` reach it, unless equal keys prevent this. The search alternates between halving
    the interval and guessing as if keys were spread evenly.
    """
    least, largest = MAGNITUDE, np.int32(0)
    for here in range(keys.size):
        key = keys[here]
        least = key if key < least else least
        largest = key if key > largest else largest
    low, high, count = np.int64(least), np.int64(largest) + 1, np.int64(keys.size)
    above, halves = np.int64(0), False
    while count > most and high - low > 1:
        span = high - low
        if halves:
            middle = low + span // 2
        else:
            share = np.float32(count - k) / np.float32(count - above)
            middle = min(max(low + np.int64(np.float32(span) * share), low + 1), high - 1)
        halves = not halves
        bound, reach = np.int32(middle), WHOLE(0)
        for here in range(keys.size):
            reach = WHOLE(reach + WHOLE(keys[here] >= bound))
        if reach >= k:
            low, count = middle, np.int64(reach)
        else:
            high, above = middle, np.int64(reach)
    return low, count


@njit(**OPTIONS)
def _keep(index, values, keys, k, best, where, kept):  # type: ignore[no-untyped-def]
    """Write the k entries of largest magnitude to `where` and `kept`, in their order.

    Of equal magnitudes, the first are kept. `keys` and `best` are memory to work in; `best` needs
    one element more than there are entries.
    """
    for here in range(keys.size):
        keys[here] = np.int32(bits_of(values[here]) & MAGNITUDE)
    kth, reach = _reached(keys, k, k)
    last = keys.size - 1
    while reach > k:  # drop the last of several equal keys
        if keys[last] == kth:
            keys[last] = -1
            reach -= 1
        last -= 1
    count = 0
    for here in range(keys.size):
        best[count] = here
        count += keys[here] >= kth
    for here in range(k):
        where[here] = index[best[here]]
        kept[here] = values[best[here]]


@njit(**OPTIONS)
def _gather(total, corner, shape, values):  # type: ignore[no-untyped-def]
    """Copy the chunk that begins at element `corner` of `total` to `values`, row by row."""
    height, width, stride = shape
    for row in range(height):
        first = corner + row * stride
        _copy(total[first : first + width], values[row * width : (row + 1) * width])


@njit(**OPTIONS)
def _find(values, keys, k, compress, index, found, best, where, kept):  # type: ignore[no-untyped-def]
    """Write positions and values of the k largest magnitudes of one chunk to `where` and `kept`.

    Only elements are ranked that exceed a bound, which at least k of them reach. `keys`, `index`,
    `found` and `best` are memory to work in.
    """
    if k == values.size:
        _copy(values, kept)
        for here in range(k):
            where[here] = here
        return
    groups = keys[: min(values.size, GROUPS * k)]
    _maxima(values, groups)
    bound, _ = _reached(groups, k, k + k // SPARE)
    _, count = collect(values, np.int32(bound - 1), compress, False, 0, index, found, 0)
    _keep(index[:count], found[:count], keys[:count], k, best, where, kept)


@njit(**OPTIONS)
def _expect(total, added, corner, shape, k, keys, bounds):  # type: ignore[no-untyped-def]
    """Write to `bounds` one bound per chunk, which almost surely at least k elements reach.

    The chunks lie side by side from element `corner` on, in total + added. A bound follows from the
    largest magnitudes in each column of SAMPLED rows. It is -1, so that all elements exceed it, if
    a chunk has too few columns.
    """
    height, width, stride = shape
    largest = keys[: bounds.size * width]
    for number in range(SAMPLED):
        first = corner + (2 * number + 1) * height // (2 * SAMPLED) * stride
        line = total[first : first + largest.size]
        if added.size:
            other = added[first : first + largest.size]
            for here in range(largest.size):
                key = np.int32(bits_of(np.float32(line[here] + other[here])) & MAGNITUDE)
                before = largest[here] if number else np.int32(0)
                largest[here] = key if key > before else before
        else:
            for here in range(largest.size):
                key = np.int32(bits_of(line[here]) & MAGNITUDE)
                before = largest[here] if number else np.int32(0)
                largest[here] = key if key > before else before
    expected = k * SAMPLED / height
    reach = np.int64(expected + SIGMAS * np.sqrt(expected) + 1)
    for x in range(bounds.size):
        bounds[x] = -1
        if reach < width:
            own = largest[x * width : (x + 1) * width]
            bounds[x] = _reached(own, reach, reach + reach // SPARE)[0] - 1


@njit(**OPTIONS)
def _add_rows(total, added, clear, corner, shape, bounds, index, found, counts):  # type: ignore[no-untyped-def]
    """Add `added` to chunks side by side, and collect the elements above each chunk's bound.

    Memory is read line by line. `index` and `found` get ROOM places per chunk, `counts` how many
    were found. With `clear`, `added` becomes zero.
    """
    height, _, stride = shape
    for x in range(counts.size):
        counts[x] = 0
    for row in range(height):
        for x in range(counts.size):
            first = corner + row * stride + x * BLOCK
            if added.size:
                add_block(total, added, first)  # type: ignore[call-arg]
                if clear:
                    clear_block(added, first)  # type: ignore[call-arg]
            reached = exceeding(total, first, bounds[x])  # type: ignore[call-arg,var-annotated]
            place = x * ROOM + counts[x]
            counts[x] += ones(reached)  # type: ignore[call-arg]
            for _ in range(AT_ONCE):  # surplus entries are overwritten later
                here = trailing_zeros(reached | LAST)  # type: ignore[call-arg]
                index[place] = row * BLOCK + here
                found[place] = total[first + here]
                place += 1
                reached &= reached - np.uint64(1)
            while reached != 0:
                here = trailing_zeros(reached)  # type: ignore[call-arg]
                index[place] = row * BLOCK + here
                found[place] = total[first + here]
                place += 1
                reached &= reached - np.uint64(1)


@njit(
    "void(float32[::1], float32[::1], boolean, int64[:, ::1], int64, boolean, int32[::1],"
    " float32[::1])",
    **OPTIONS,
)
def add_find(total, added, clear, layout, k, compress, where, kept):  # type: ignore[no-untyped-def]
    """Write the k largest magnitudes of every chunk of total += added to `where` and `kept`.

    `where` has positions within the chunk, ascending, and `kept` the values. A chunk with fewer
    than k elements gives all. `added` may be empty; `clear` sets it to zero.
    """
    values, keys = np.empty(MOST, np.float32), np.empty(ROOM, np.int32)
    index, found = np.empty(PANEL * ROOM, np.int32), np.empty(PANEL * ROOM, np.float32)
    bounds, counts = np.empty(PANEL, np.int32), np.empty(PANEL, np.int64)
    samples, best = np.empty(PANEL * BLOCK, np.int32), np.empty(ROOM, np.int32)
    done = 0
    for parameter in range(layout.shape[0]):
        begin, height, width, stride, across, down = layout[parameter]
        shape, size = (height, width, stride), height * width
        wanted = min(k, size)
        bounded = width == BLOCK and height >= 4 * SAMPLED and wanted < size
        for left in range(0, across, PANEL):
            chunks = min(PANEL, across - left)
            for y in range(down):
                corner = begin + y * height * stride + left * width
                if bounded:
                    _expect(total, added, corner, shape, wanted, samples, bounds[:chunks])
                    _add_rows(total, added, clear, corner, shape, bounds, index, found,
                              counts[:chunks])  # fmt: skip
                elif added.size:
                    for row in range(height):
                        first, length = corner + row * stride, chunks * width
                        _add(total[first : first + length], added[first : first + length], clear)
                for x in range(chunks):
                    at = ((y * across) + left + x) * wanted + done
                    own, out = where[at : at + wanted], kept[at : at + wanted]
                    if bounded and counts[x] >= wanted:
                        here, count = x * ROOM, counts[x]
                        _keep(
                            index[here : here + count], found[here : here + count], keys[:count],
                            wanted, best, own, out,
                        )  # fmt: skip
                    else:
                        chunk = values[:size]
                        _gather(total, corner + x * width, shape, chunk)
                        _find(chunk, keys, wanted, compress, index, found, best, own, out)
        done += wanted * across * down


@njit("boolean(int64[:, ::1], int64, int32[::1], int32[::1])", **OPTIONS)
def positions(layout, k, where, out):  # type: ignore[no-untyped-def]
    """Convert positions within chunks, `where`, to positions in the bucket, `out`.

    Every chunk has k of them, or all its elements. Return False if one is outside its chunk; `out`
    is then useless.
    """
    offsets, done, inside = np.empty(MOST, np.int32), 0, True
    for parameter in range(layout.shape[0]):
        begin, height, width, stride, across, down = layout[parameter]
        size = height * width
        wanted = min(k, size)
        for row in range(height):
            for column in range(width):
                offsets[row * width + column] = row * stride + column
        for y in range(down):
            for x in range(across):
                corner = np.int32(begin + y * height * stride + x * width)
                for here in range(done, done + wanted):
                    place = np.uint32(where[here])
                    inside = inside and place < size
                    out[here] = corner + offsets[place % MOST]
                done += wanted
    return inside


@njit("void(int32[::1], uint8[::1])", **OPTIONS)
def pack(where, packed):  # type: ignore[no-untyped-def]
    """Pack pairs of positions below 4096 into three bytes each, and an odd last one into two."""
    for pair in range(where.size // 2):
        one, two, byte = where[2 * pair], where[2 * pair + 1], 3 * pair
        packed[byte] = one & 255
        packed[byte + 1] = (one >> 8) | ((two & 15) << 4)
        packed[byte + 2] = two >> 4
    if where.size % 2:
        packed[packed.size - 2] = where[where.size - 1] & 255
        packed[packed.size - 1] = where[where.size - 1] >> 8


@njit("void(uint8[::1], int32[::1])", **OPTIONS)
def unpack(packed, where):  # type: ignore[no-untyped-def]
    """Write the positions that `pack` packed to `where`."""
    for pair in range(where.size // 2):
        byte = 3 * pair
        one, two, three = np.int32(packed[byte]), np.int32(packed[byte + 1]), packed[byte + 2]
        where[2 * pair] = one | ((two & 15) << 8)
        where[2 * pair + 1] = (two >> 4) | (np.int32(three) << 4)
    if where.size % 2:
        low, high = np.int32(packed[packed.size - 2]), np.int32(packed[packed.size - 1])
        where[where.size - 1] = low | ((high & 15) << 8)


@njit(**OPTIONS)
def _halvings(bits):  # type: ignore[no-untyped-def]
    """Return log2 of the codes per byte, for codes of 1, 2, 4 or 8 `bits`."""
    halvings = 0
    while bits << halvings < BYTE:
        halvings += 1
    return halvings


@njit("void(float32[::1], int64[::1], int64, float64, float32[:, ::1], uint8[::1])", **OPTIONS)
def quantise(values, counts, bits, sigmas, books, packed):  # type: ignore[no-untyped-def]
    """Quantise `values`, parts of `counts` elements each, to codes of `bits` bits.

    Write the codes to `packed` and one codebook per part to `books`, as compressors.codebook
    defines them. The levels of a part span `sigmas` standard deviations in all.
    """
    levels, halvings = 1 << bits, _halvings(bits)
    sums, members = np.empty(levels, np.float64), np.empty(levels, np.float64)
    packed[:] = 0
    first = 0
    for number in range(counts.size):
        part = values[first : first + counts[number]]
        total, squares = 0.0, 0.0
        for here in range(part.size):
            total += np.float64(part[here])
        mean = np.float32(total / part.size)
        for here in range(part.size):
            apart = np.float64(np.float32(part[here] - mean))
            squares += apart * apart
        step = np.float32(sigmas / levels * (np.sqrt(squares) / np.sqrt(part.size - 1.0)))
        if not (step > 0 and np.isfinite(step)):
            step = np.float32(1)
        sums[:], members[:] = 0, 0
        middle, last = np.float32(levels // 2), np.float32(levels - 1)
        for here in range(part.size):
            centred = np.float32(part[here] - mean)
            level = np.rint(np.float32(np.float32(centred / step) + middle))
            level = level if level > 0 else np.float32(0)  # NaN too becomes 0
            code = np.int64(level if level < last else last)
            sums[code] += np.float64(centred)
            members[code] += 1
            place = first + here
            packed[place >> halvings] |= np.uint8(code << bits * (place & (1 << halvings) - 1))
        for own in range(levels):
            books[number, own] = np.float32(sums[own] / max(1.0, members[own]))
        books[number, levels] = mean
        first += part.size


@njit("void(uint8[::1], int64[::1], int64, float32[:, ::1], float32[::1])", **OPTIONS)
def decode(packed, counts, bits, books, values):  # type: ignore[no-untyped-def]
    """Decode `counts` codes of `bits` bits per part to `values`, by the part's row of `books`."""
    levels, halvings = 1 << bits, _halvings(bits)
    table = np.empty(levels, np.float32)
    first = 0
    for number in range(counts.size):
        for code in range(levels):
            table[code] = np.float32(books[number, code] + books[number, levels])
        for place in range(first, first + counts[number]):
            here = bits * (place & (1 << halvings) - 1)
            values[place] = table[(packed[place >> halvings] >> here) & (levels - 1)]
        first += counts[number]
