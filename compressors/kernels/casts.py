"""Casts to 16-bit floats in machine code: add, divide, round to nearest even, keep the error."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from compressors.kernels.vectors import CHUNK, I16, OPTIONS, bits_of, float_of, intrinsic

MAGNITUDE, INFINITY = 0x7FFFFFFF, 0x7F800000  # float32: mask without sign; bits of infinity
HALF, QUIET = 0x7FFF, 0x40  # just below half of bfloat16's last place; bit that keeps a NaN
WORD: Any = np.uint32
HIGH = WORD(16)


@intrinsic
def _half(_: Any, x: Any) -> Any:
    """Return the bits of a float32 rounded to float16, as uint16."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), I16)

    return types.uint16(x), emit


@intrinsic
def _from_half(_: Any, bits: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = builder.bitcast(arguments[0], ir.HalfType())
        return builder.fpext(half, ir.FloatType())

    return types.float32(bits), emit


@njit(**OPTIONS)
def _bfloat_of_number(x):  # type: ignore[no-untyped-def]
    """Return the bits of a float32 rounded to bfloat16, as uint16. The input must not be NaN."""
    bits = WORD(bits_of(x))
    odd = WORD(WORD(bits >> HIGH) & WORD(1))
    return np.uint16(WORD(WORD(WORD(bits + WORD(HALF)) + odd) >> HIGH))


@njit(**OPTIONS)
def _bfloat(x):  # type: ignore[no-untyped-def]
    """Return the bits of a float32 rounded to bfloat16, as uint16; NaN stays NaN."""
    bits = WORD(bits_of(x))
    is_nan = WORD(bits & WORD(MAGNITUDE)) > WORD(INFINITY)
    return np.uint16(WORD(bits >> HIGH) | WORD(QUIET)) if is_nan else _bfloat_of_number(x)


@njit(**OPTIONS)
def _from_bfloat(bits):  # type: ignore[no-untyped-def]
    return float_of(WORD(WORD(bits) << HIGH))


@njit(**OPTIONS)
def _largest(x):  # type: ignore[no-untyped-def]
    most = np.int32(0)
    for here in range(x.size):
        key = np.int32(bits_of(x[here]) & np.int32(MAGNITUDE))
        most = key if key > most else most
    return most


@njit("int32(float32[::1], float32[::1], int64, boolean, boolean, uint16[::1])", **OPTIONS)
def encode(total, added, workers, bfloat, keep, wire):  # type: ignore[no-untyped-def]
    """Write (total += added) / workers as 16-bit floats to `wire`, [n]; `added` may be empty.

    Return the bits of the sum's largest magnitude. With `keep`, `total` becomes the sum minus
    `workers` times the decoded `wire`. Otherwise it becomes the sum.
    """
    most = np.int32(0)
    share, times = np.float32(1) / np.float32(workers), np.float32(workers)
    for first in range(0, total.size, CHUNK):
        part, own = total[first : first + CHUNK], wire[first : first + CHUNK]
        if added.size:
            other = added[first : first + CHUNK]
            for here in range(part.size):
                part[here] += other[here]
        largest = _largest(part)
        most = max(most, largest)
        if bfloat and largest <= INFINITY:  # no NaN; a check of each element takes 25 % longer
            for here in range(part.size):
                own[here] = _bfloat_of_number(np.float32(part[here] * share))
        elif bfloat:
            for here in range(part.size):
                own[here] = _bfloat(np.float32(part[here] * share))
        else:
            for here in range(part.size):
                own[here] = _half(np.float32(part[here] * share))
        if keep and bfloat:
            for here in range(part.size):
                part[here] -= np.float32(_from_bfloat(own[here]) * times)
        elif keep:
            for here in range(part.size):
                part[here] -= np.float32(_from_half(own[here]) * times)
    return most
