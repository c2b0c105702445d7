"""Comparisons of every compiled kernel with numpy, on vectors of a few thousand elements."""

from typing import Any

import numpy as np
import torch

SIZE = 4999  # elements: more than a chunk, not a multiple of a block
NONE = np.empty(0, np.float32)
KEY = np.array([5, 7], np.uint32)


def agrees(native: Any) -> bool:
    """True if every kernel that does not select gives numpy's results."""
    tests = (_signs, _votes, _levels, _casts, _positions, _products, _chunks, _books)
    return all(test(native) for test in tests)


def _normal(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SIZE, np.float32)


def _addresses(*arrays: np.ndarray) -> np.ndarray:
    return np.array([array.ctypes.data for array in arrays], np.int64)


def _signs(native: Any) -> bool:
    x, other = _normal(0), _normal(1)
    other[::97], x[5::97] = 0.0, -0.0
    packed, total, scale = np.empty(-(-SIZE // 8), np.uint8), x.copy(), np.float32(0.3)
    found = [native.signs.add_pack(total.copy(), other, squared, packed) for squared in (0, 1)]
    total += other
    wide = np.abs(total, dtype=np.float64)
    signed = np.where(total >= 0, scale, -scale)
    added, summed = total.copy(), x.copy()
    native.signs.add(added, packed, scale)
    scales = np.full(2, scale)
    native.signs.add_all(summed, _addresses(packed, packed), scales, True)
    return (
        np.array_equal(packed, np.packbits(total >= 0, bitorder="little"))
        and np.allclose(found, (wide.sum(), np.square(wide).sum()), rtol=1e-12)
        and np.array_equal(added, total + signed)
        and np.array_equal(summed, x + signed + signed)
    )


def _votes(native: Any) -> bool:
    ballots = [_normal(seed) >= 0 for seed in range(4)]
    packed = [np.packbits(ballot, bitorder="little") for ballot in ballots]
    result = np.empty(SIZE, np.float32)
    for count in range(1, 5):
        native.signs.vote(_addresses(*packed[:count]), 0.5, result)
        ahead = 2 * np.sum(ballots[:count], axis=0) >= count
        if not np.array_equal(result, np.where(ahead, np.float32(0.5), np.float32(-0.5))):
            return False
    return True


def _levels(native: Any) -> bool:
    x, ends = _normal(2), np.array([100, 3000, SIZE])
    drawn = _uniform(SIZE)
    for norm, width in (
        (native.quantise.LARGEST, 8),
        (native.quantise.GIVEN, 3),
        (native.quantise.GIVEN, 2),
    ):
        most = np.float32((1 << width - 1) - 1)
        blocks = np.split(np.abs(x), ends[:-1])
        steps = np.array([block.max() for block in blocks]) / most
        each = np.repeat(steps, np.diff(ends, prepend=0))
        parts = np.rint(x * (np.float32(1 << 16) / each)).astype(np.int32)
        levels = np.clip(parts + drawn >> 16, -most, most)
        packed, total = np.empty(-(-width * SIZE // 8), np.uint8), x.copy()
        settings = (ends, norm, int(most), width, KEY, True)
        native.quantise.encode(total, NONE, *settings, steps, packed)
        mean, codes = np.empty(SIZE, np.float32), np.empty(SIZE, np.uint8)
        if width < 8:
            native.quantise.unpack(packed, width, 0, codes)
        else:
            codes = packed
        rows = (_addresses(packed, packed), _addresses(steps, steps), ends, int(most), width)
        native.quantise.average(*rows, mean)
        shared = (levels * (each / np.float32(2))).astype(np.float32)
        if not np.array_equal(codes, levels + most) or not np.array_equal(mean, shared + shared):
            return False
        if not np.array_equal(total, x - (levels * each).astype(np.float32)):
            return False
    return True


def _uniform(n: int) -> np.ndarray:
    """Numbers equal to compressors.counter_rng.uniform's for KEY."""
    x = np.arange(-(-n // 2), dtype=np.uint32) * np.uint32(0x9E3779B1) ^ KEY[0]
    x = (x ^ x >> 15) * np.uint32(0x846CA68B) ^ KEY[1]
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    return (x ^ x >> 15).view(np.uint16)[:n].astype(np.int32)


def _casts(native: Any) -> bool:
    x = _normal(3) * 1e-3
    x[:6] = 0.0, -1e-42, 65504.0, 1e-7, 1e30, -3e-5
    for bfloat, kind in ((True, torch.bfloat16), (False, torch.float16)):
        wire, total = np.empty(SIZE, np.uint16), x.copy()
        most = native.casts.encode(total, NONE, 2, bfloat, True, wire)
        halved = torch.from_numpy(x * np.float32(0.5)).to(kind)
        left = x - halved.float().numpy() * np.float32(2)
        if not np.array_equal(wire, halved.view(torch.int16).numpy().view(np.uint16)):
            return False
        if most != np.abs(x).max().view(np.int32) or not np.array_equal(total, left, True):
            return False
    return True


def _positions(native: Any) -> bool:
    x, kernels = _normal(4), native.scatter
    bitmap = np.zeros(-(-SIZE // 64), np.uint64)
    kernels.mark(SIZE, 300, 7, bitmap)
    marked = np.unpackbits(bitmap.view(np.uint8), bitorder="little")[:SIZE].astype(bool)
    index = np.zeros(300 + kernels.AHEAD, np.int32)
    kernels.positions(bitmap, False, index)
    index = index[:300]
    if not np.array_equal(np.flatnonzero(marked), index):  # then nothing is read there
        return False
    values, total, summed = np.empty(300, np.float32), x.copy(), x.copy()
    kernels.take(total, index, True, values)
    if not _sums(kernels, index, values):
        return False
    inside = kernels.add(summed, index, values, 0.5)
    summed[index] -= x[index] * np.float32(0.5)
    return (
        np.array_equal(values, x[index])
        and np.array_equal(total, np.where(marked, np.float32(0), x))
        and np.allclose(summed, x, rtol=1e-6)
        and inside
        and not kernels.add(summed, np.array([SIZE], np.int32), values, 0.5)
    )


def _sums(kernels: Any, index: np.ndarray, values: np.ndarray) -> bool:
    """True if sums agree with numpy's at every alignment of the vectors."""
    doubled, taken = values * np.float32(2), np.empty_like(values)
    for first in (0, 1):
        total, expected = np.full(SIZE + first, np.float32(7)), np.zeros(SIZE, np.float32)
        expected[index] = values + doubled
        rows = (_addresses(index, index), _addresses(values, doubled), np.array([300, 300]))
        inside = kernels.add_all(total[first:], *rows, 1.0, True)
        if not inside or not np.array_equal(total[first:], expected):
            return False
        left = np.zeros(SIZE, np.float32)
        most, count = kernels.add_take(left, expected, True, index, True, taken)
        if (
            count < 300
            or most != np.abs(values + doubled).max().view(np.int32)
            or left.any()
            or expected.any()
        ):
            return False
        if not np.array_equal(taken, values + doubled):
            return False
    return _filled(kernels) and not kernels.add_all(np.empty(9, np.float32), *rows, 1.0, True)


def _filled(kernels: Any) -> bool:
    """Past the cache, of which whole chunks are written, and the rest of a vector as usual."""
    n = kernels.CHUNK + 9
    whole = np.full(n + kernels.ALIGNMENT, np.float32(7))
    total = whole[-whole.ctypes.data % kernels.ALIGNMENT // 4 :][:n]
    near, far = np.array([3, 5, n - 1], np.int32), np.array([0, 5, kernels.CHUNK], np.int32)
    values = np.arange(1, 4, dtype=np.float32)
    rows = (_addresses(near, far), _addresses(values, values), np.array([3, 3]))
    expected = np.zeros(n, np.float32)
    np.add.at(expected, np.concatenate([near, far]), np.concatenate([values, values]))
    if not kernels.fill(total, *rows, 1.0) or not np.array_equal(total, expected):
        return False
    near[:] = n - 1, 3, 5
    return not kernels.fill(total, *rows, 1.0)


def _products(native: Any) -> bool:
    n, m = 11, SIZE // 11
    matrix, added = _normal(5)[: n * m].reshape(n, m), _normal(6)[: n * m].reshape(n, m)
    right, out = _normal(7)[: 4 * m].reshape(4, m), np.empty((n, m), np.float32)
    left, total, both = np.empty((4, n), np.float32), matrix.copy(), matrix + added
    native.lowrank.left_of(total, added, True, right, left, True)
    native.lowrank.product(out, left, right, total, True)
    product = left.T @ right
    pairs = [(left, right @ both.T), (out, product)]
    found = np.empty_like(right)
    native.lowrank.right_of(matrix, added, True, left, found)
    native.lowrank.subtract(total, left, right)
    pairs += [(matrix, both), (found, left @ both), (total, both - 3 * product)]
    pairs += _past_cache(native.lowrank)
    return all(np.allclose(one, other, rtol=1e-4, atol=1e-2) for one, other in pairs)


def _past_cache(kernels: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """A product large enough to be written past it, and what is left of ones, beside numpy's."""
    n, m = 26, kernels.LARGE // 26 + 1
    left, right = _normal(8)[: 4 * n].reshape(4, n), np.resize(_normal(9), (4, m))
    out, total = np.empty((n, m), np.float32), np.ones((n, m), np.float32)
    kernels.product(out, left, right, total, True)
    return [(out, left.T @ right), (total, 1 - left.T @ right)]


def _chunks(native: Any) -> bool:
    """True for chunks of 64 x 64, by bounds, of 4 x 9, and of 9 elements of a vector."""
    rows = (0, 64, 64, 64, 1, 1), (4096, 4, 9, 18, 2, 11), (4888, 1, 9, 9, 1, 12)
    k, end = 10, 4996
    total, added = (_normal(seed).round(1)[:end] for seed in (10, 11))
    both, spent, expected, where = total + added, added.copy(), [], []
    for first, height, width, _, across, down in rows:
        size = height * width
        part = both[first : first + across * down * size].reshape(down, height, across, width)
        chunks = part.swapaxes(1, 2).reshape(-1, size)
        order = np.argsort(-np.abs(chunks), axis=1, kind="stable")[:, : min(k, size)]
        expected.append(np.sort(order).ravel())
        place = np.arange(both.size)[first : first + part.size].reshape(part.shape).swapaxes(1, 2)
        where.append(np.take_along_axis(place.reshape(-1, size), np.sort(order), 1).ravel())
    wanted, at = np.concatenate(expected), np.concatenate(where)
    layout, found, values = np.array(rows, np.int64), np.empty(wanted.size, np.int32), both[at] * 0
    native.chunks.add_find(total, spent, True, layout, k, native.compress, found, values)
    packed, again = np.empty(-(-3 * found.size // 2), np.uint8), np.empty_like(found)
    native.chunks.pack(found, packed)
    native.chunks.unpack(packed, again)
    positions = np.empty_like(found)
    return (
        np.array_equal(found, wanted)
        and np.array_equal(values, both[at])
        and np.array_equal(total, both)
        and not spent.any()
        and np.array_equal(again, wanted)
        and native.chunks.positions(layout, k, again, positions)
        and np.array_equal(positions, at)
        and not native.chunks.positions(layout, k, again + 4000, positions)
    )


def _books(native: Any) -> bool:
    """True for two parts, the second of equal values, in codes of 2 bits."""
    values, counts, levels = _normal(12)[:1001], np.array([990, 11]), 4
    values[990:] = 0.25
    books, packed = np.empty((2, 5), np.float32), np.empty(251, np.uint8)
    found, expected = np.empty_like(values), np.full_like(values, 0.25)
    native.chunks.quantise(values, counts, 2, 6.0, books, packed)
    native.chunks.decode(packed, counts, 2, books, found)
    part = values[:990]
    mean = np.float32(part.mean(dtype=np.float64))
    step = np.float32(6 / levels * (part - mean).std(ddof=1, dtype=np.float64))
    codes = np.clip(np.rint((part - mean) / step + 2), 0, 3)
    for code in range(levels):
        own = part[codes == code] - mean
        expected[:990][codes == code] = own.mean(dtype=np.float64) + mean
    return np.allclose(found, expected, rtol=1e-5, atol=1e-6) and packed[250] & 3 == 2
