"""Products of a matrix with thin factors in machine code, reading the matrix once per product.

For a matrix [n, m] the factors are [r, n] and [r, m], where r is a multiple of SIDE. SIDE rows of
the matrix and SIDE rows of a factor are combined at a time, so that each element is loaded once for
all of them.
"""

from typing import Any

import numpy as np
from numba import njit

from compressors.kernels.rows import SIDE, mix, set_past_cache, sum_at
from compressors.kernels.vectors import ALIGNMENT, LANES, OPTIONS, settle

CHUNK = 8192  # columns per pass; SIDE rows of them fit into the L1 cache
STRIP = 1024  # columns per pass of a product that is written past the cache
LARGE = 1 << 17  # elements from which a product leaves the cache before it is read
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
    """Do the work of `product` for SIDE ranks and an `out` that is larger than the caches."""
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
    """Read rows `first` to `end` in order of memory, so that they are cached for what follows.

    Return a number that depends on all of them; otherwise the compiler would drop the reads.
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
    """Do the work of `mix` for `rows` and `others` rows, at most SIDE, and all columns to `end`."""
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
    """Add products of SIDE rows of `matrix` and SIDE of `right` to a square of `left`.

    They begin at row i and row a; the square is left[a : a + SIDE, i : i + SIDE]. Only columns
    `first` to `end` count.
    """
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
    """Add `sign` left^T right to `rows` rows of `matrix` from row i; columns `first` to `end`."""
    for a in range(0, right.shape[0], SIDE):
        for row in range(rows):
            for b in range(SIDE):
                weights[SIDE * row + b] = sign * left[a + b, i + row]
        _add_mixed(matrix, i, rows, right, a, SIDE, weights, first, end)


@njit(
    f"int32({MATRIX}, {MATRIX}, boolean, {MATRIX}, {MATRIX}, boolean)", fastmath=FASTMATH, **OPTIONS
)
def left_of(matrix, added, adds, right, left, subtracts):  # type: ignore[no-untyped-def]
    """Set `left`, [r, n], to right matrix^T, in one pass over `matrix`, [n, m].

    With `adds`, add `added`, [n, m], to the matrix before. With `subtracts`, subtract left^T right
    from it afterwards. Ignore the returned number.
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
    """Set `right`, [r, m], to left matrix, in one pass over `matrix`, [n, m].

    With `adds`, add `added`, [n, m], to the matrix before. Ignore the returned number.
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
    """Subtract left^T right from `matrix`, [n, m]. Ignore the returned number."""
    n, m = matrix.shape
    weights, seen = np.empty(SIDE * SIDE, np.float32), np.int32(0)
    for i in range(0, n, SIDE):
        seen ^= _fetch(matrix, i, min(i + SIDE, n))
        _add_rows(matrix, i, min(SIDE, n - i), left, right, np.float32(-1), weights, 0, m)
    return seen


@njit(f"void({MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, boolean)", fastmath=FASTMATH, **OPTIONS)
def product(out, left, right, matrix, subtracts):  # type: ignore[no-untyped-def]
    """Set `out`, [n, m], to left^T right; with `subtracts`, also subtract it from `matrix`."""
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
