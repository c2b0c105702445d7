"""Products of a matrix with thin factors in machine code: the matrix is read once for each.

Factors are [r, n] and [r, m] for a matrix [n, m], r a multiple of SIDE: rows of them are combined.
SIDE rows of the matrix meet SIDE rows of a factor at a time, so that each element is loaded once
for them.
"""

from typing import Any

import numpy as np
from numba import njit

from compressors.kernels.rows import SIDE, mix, set_past_cache, sum_at
from compressors.kernels.vectors import ALIGNMENT, LANES, OPTIONS, settle

CHUNK = 8192  # columns at a time: SIDE rows of them stay in the nearest cache
STRIP = 1024  # columns at a time, of a product written past the cache
LARGE = 1 << 17  # elements of a matrix that is not read soon enough to be kept in the cache
FLOAT_BYTES = 4
FASTMATH = {"reassoc", "nsz", "contract"}  # NaN and infinity are kept
MATRIX = "float32[:,::1]"


@njit(**OPTIONS)
def _set_columns(out, row, source, weights, taken, takes, first, end):  # type: ignore[no-untyped-def]
    for column in range(first, end):
        total: Any = sum_at(source, weights, column)  # type: ignore[call-arg]
        out[row, column] = total
        if takes:
            taken[row, column] -= total


@njit(**OPTIONS)
def _set_rows(out, left, right, taken, takes):  # type: ignore[no-untyped-def]
    """`product` of SIDE ranks, for an `out` that the caches do not hold anyway."""
    n, m = out.shape
    weights, start = np.empty(SIDE * SIDE, np.float32), out.ctypes.data
    for first in range(0, m, STRIP):
        end = min(first + STRIP, m)
        for row in range(n):
            for b in range(SIDE):
                weights[b] = left[b, row]
            ahead = -(start // FLOAT_BYTES + row * m + first) % (ALIGNMENT // FLOAT_BYTES)
            begin = min(first + ahead, end)
            rest = end - (end - begin) % LANES
            _set_columns(out, row, right, weights, taken, takes, first, begin)
            set_past_cache(out, row, right, weights, taken, begin, rest)  # type: ignore[call-arg]
            _set_columns(out, row, right, weights, taken, takes, rest, end)
    settle()  # type: ignore[call-arg]


@njit(fastmath=FASTMATH, **OPTIONS)
def _add(total, x):  # type: ignore[no-untyped-def]
    for here in range(total.size):
        total[here] += x[here]


@njit(**OPTIONS)
def _fetch(matrix, first, end):  # type: ignore[no-untyped-def]
    """Reads some rows in the order of memory, so that they are near when several are read at once.

    Returns a number that depends on all of them, without which nothing would be read.
    """
    seen, bits = np.int32(0), matrix.reshape(-1).view(np.int32)
    part = bits[first * matrix.shape[1] : end * matrix.shape[1]]
    for here in range(part.size):
        seen ^= part[here]
    return seen


@njit(fastmath=FASTMATH, **OPTIONS)
def _take(total, x):  # type: ignore[no-untyped-def]
    for here in range(total.size):
        total[here] -= x[here]


@njit(fastmath=FASTMATH, **OPTIONS)
def _add_mixed(into, row, rows, source, other, others, weights, first, end):  # type: ignore[no-untyped-def]
    """`mix` for `rows` and `others` of them, SIDE at most, and all columns to `end`."""
    if rows == SIDE and others == SIDE:
        mix(into, row, source, other, weights, first, end)  # type: ignore[call-arg]
        first = end - (end - first) % LANES
    for a in range(rows):
        for b in range(others):
            weight = weights[SIDE * a + b]
            total, part = into[row + a, first:end], source[other + b, first:end]
            for here in range(total.size):
                total[here] += weight * part[here]


@njit(fastmath=FASTMATH, **OPTIONS)
def _add_products(matrix, i, right, a, left, first, end):  # type: ignore[no-untyped-def]
    """Add to `left`[a : a + SIDE, i : i + SIDE] the products of these rows, for some columns."""
    w, x, y, z = (
        matrix[i, first:end],
        matrix[i + 1, first:end],
        matrix[i + 2, first:end],
        matrix[i + 3, first:end],
    )
    p, q, r, s = (
        right[a, first:end],
        right[a + 1, first:end],
        right[a + 2, first:end],
        right[a + 3, first:end],
    )
    pw = px = py = pz = qw = qx = qy = qz = np.float32(0)
    rw = rx = ry = rz = sw = sx = sy = sz = np.float32(0)
    for here in range(p.size):
        pw += p[here] * w[here]
        px += p[here] * x[here]
        py += p[here] * y[here]
        pz += p[here] * z[here]
        qw += q[here] * w[here]
        qx += q[here] * x[here]
        qy += q[here] * y[here]
        qz += q[here] * z[here]
        rw += r[here] * w[here]
        rx += r[here] * x[here]
        ry += r[here] * y[here]
        rz += r[here] * z[here]
        sw += s[here] * w[here]
        sx += s[here] * x[here]
        sy += s[here] * y[here]
        sz += s[here] * z[here]
    for b, found in enumerate(
        ((pw, px, py, pz), (qw, qx, qy, qz), (rw, rx, ry, rz), (sw, sx, sy, sz))
    ):
        for c in range(SIDE):
            left[a + b, i + c] += found[c]


@njit(fastmath=FASTMATH, **OPTIONS)
def _dot(x, y):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for here in range(x.size):
        total += x[here] * y[here]
    return total


@njit(fastmath=FASTMATH, **OPTIONS)
def _add_rows(matrix, i, rows, left, right, sign, weights, first, end):  # type: ignore[no-untyped-def]
    """Add `sign` left^T right to `rows` rows of `matrix` from row `i` on, for some columns."""
    for a in range(0, right.shape[0], SIDE):
        for row in range(rows):
            for b in range(SIDE):
                weights[SIDE * row + b] = sign * left[a + b, i + row]
        _add_mixed(matrix, i, rows, right, a, SIDE, weights, first, end)


@njit(
    f"int32({MATRIX}, {MATRIX}, boolean, {MATRIX}, {MATRIX}, boolean)",
    fastmath=FASTMATH,
    **OPTIONS,
)
def left_of(matrix, added, adds, right, left, subtracts):  # type: ignore[no-untyped-def]
    """`left`, [r, n], becomes right matrix^T, in one pass over `matrix`, [n, m].

    `adds` adds `added`, [n, m], before; `subtracts` takes left^T right away after. What is returned
    means nothing.
    """
    n, m = matrix.shape
    ranks, seen = right.shape[0], np.int32(0)
    weights = np.empty(SIDE * SIDE, np.float32)
    left[:] = 0
    for i in range(0, n, SIDE):
        rows = min(SIDE, n - i)
        if not adds:
            seen ^= _fetch(matrix, i, i + rows)
        for first in range(0, m, CHUNK):
            end = min(first + CHUNK, m)
            if adds:
                for row in range(i, i + rows):
                    _add(matrix[row, first:end], added[row, first:end])
            for a in range(0, ranks, SIDE):
                if rows == SIDE:
                    _add_products(matrix, i, right, a, left, first, end)
                else:
                    for row in range(i, n):
                        for b in range(a, a + SIDE):
                            left[b, row] += _dot(matrix[row, first:end], right[b, first:end])
        if subtracts:
            _add_rows(matrix, i, rows, left, right, np.float32(-1), weights, 0, m)
    return seen


@njit(f"int32({MATRIX}, {MATRIX}, boolean, {MATRIX}, {MATRIX})", fastmath=FASTMATH, **OPTIONS)
def right_of(matrix, added, adds, left, right):  # type: ignore[no-untyped-def]
    """`right`, [r, m], becomes left matrix, in one pass over `matrix`, [n, m].

    `adds` adds `added`, [n, m], before. What is returned means nothing.
    """
    n, m = matrix.shape
    weights, seen = np.empty(SIDE * SIDE, np.float32), np.int32(0)
    right[:] = 0
    for i in range(0, n, SIDE):
        rows = min(SIDE, n - i)
        if not adds:
            seen ^= _fetch(matrix, i, i + rows)
        for first in range(0, m, CHUNK):
            end = min(first + CHUNK, m)
            if adds:
                for row in range(i, i + rows):
                    _add(matrix[row, first:end], added[row, first:end])
            for a in range(0, right.shape[0], SIDE):
                for b in range(SIDE):
                    for row in range(rows):
                        weights[SIDE * b + row] = left[a + b, i + row]
                _add_mixed(right, a, SIDE, matrix, i, rows, weights, first, end)
    return seen


@njit(f"int32({MATRIX}, {MATRIX}, {MATRIX})", fastmath=FASTMATH, **OPTIONS)
def subtract(matrix, left, right):  # type: ignore[no-untyped-def]
    """Take left^T right away from `matrix`, [n, m]. What is returned means nothing."""
    n, m = matrix.shape
    weights, seen = np.empty(SIDE * SIDE, np.float32), np.int32(0)
    for i in range(0, n, SIDE):
        seen ^= _fetch(matrix, i, min(i + SIDE, n))
        _add_rows(matrix, i, min(SIDE, n - i), left, right, np.float32(-1), weights, 0, m)
    return seen


@njit(f"void({MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, boolean)", fastmath=FASTMATH, **OPTIONS)
def product(out, left, right, matrix, subtracts):  # type: ignore[no-untyped-def]
    """`out`, [n, m], becomes left^T right; `subtracts` takes it away from `matrix`, too."""
    n, m = out.shape
    if right.shape[0] == SIDE and out.size >= LARGE:
        _set_rows(out, left, right, matrix if subtracts else out, subtracts)
        return
    weights = np.empty(SIDE * SIDE, np.float32)
    for i in range(0, n, SIDE):
        rows = min(SIDE, n - i)
        for first in range(0, m, CHUNK):
            end = min(first + CHUNK, m)
            for row in range(i, i + rows):
                out[row, first:end] = 0
            _add_rows(out, i, rows, left, right, np.float32(1), weights, first, end)
            if subtracts:
                for row in range(i, i + rows):
                    _take(matrix[row, first:end], out[row, first:end])
