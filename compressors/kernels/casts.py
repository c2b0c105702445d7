"""16-bit floats in machine code: divide, round to nearest even, and what that took, in one pass."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from compressors.kernels.vectors import CHUNK, I16, OPTIONS, bits_of, float_of, intrinsic

MAGNITUDE, INFINITY = 0x7FFFFFFF, 0x7F800000  # bits of a float32 but its sign; of infinity
HALF, QUIET = 0x7FFF, 0x40  # just below a half of bfloat16's last place; makes a NaN one
WORD: Any = np.uint32
HIGH = WORD(16)


@intrinsic
def _half(_: Any, x: Any) -> Any:
    """The bits of a float32 rounded to a float16."""

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
    """The bits of a float32, not NaN, rounded to a bfloat16."""
    bits = WORD(bits_of(x))
    odd = WORD(WORD(bits >> HIGH) & WORD(1))
    return np.uint16(WORD(WORD(WORD(bits + WORD(HALF)) + odd) >> HIGH))


@njit(**OPTIONS)
def _bfloat(x):  # type: ignore[no-untyped-def]
    """The bits of a float32 rounded to a bfloat16."""
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
    """(total += added) / workers as 16 bits into `wire`, [n]; `added` may be empty.

    Returns the bits of the sum's largest magnitude. With `keep`, `total` is left with the sum less
    what `wire` stands for times workers; otherwise with the sum.
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
        if bfloat and largest <= INFINITY:  # without NaN, which costs a quarter more to look for
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
