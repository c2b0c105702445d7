"""Signs as bits in machine code, and their scale: loops around one vector instruction each.

The bits are those of compressors.packing: eight to a byte, the first element in the lowest, 1 for
what is >= 0. This file shares nothing with the other kernels: numba's cache would not notice when
that has changed.
"""

import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

BLOCK, BYTE = 64, 8  # elements of a step; to a byte

F32, I64 = ir.FloatType(), ir.IntType(64)
FLOATS, MASK = ir.VectorType(F32, BLOCK), ir.VectorType(ir.IntType(1), BLOCK)

OPTIONS: dict[str, Any] = {"nogil": True, "cache": "NUMBA_CACHE_DIR" in os.environ}
SUM = {"reassoc", "nsz"}  # of fast math, what a sum in vectors needs; NaN and infinity are kept


def _pointers(context: Any, builder: Any, kinds: Any, arrays: Any, first: Any) -> tuple[Any, Any]:
    """Where the BLOCK elements from `first` are, and where their bits are."""
    x, packed = (
        context.make_array(kind)(context, builder, array).data
        for kind, array in zip(kinds, arrays, strict=True)
    )
    byte = builder.udiv(first, I64(BYTE))
    return (
        builder.bitcast(builder.gep(x, [first]), FLOATS.as_pointer()),
        builder.bitcast(builder.gep(packed, [byte]), I64.as_pointer()),
    )


def _load(builder: Any, pointer: Any, align: int) -> Any:
    loaded = builder.load(pointer)
    loaded.align = align
    return loaded


def _splat(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
    return builder.shuffle_vector(one, one, zeros)


@intrinsic
def _pack_block(_: Any, x: Any, packed: Any, first: Any) -> Any:
    """Write the bits of the BLOCK elements from `first`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *arrays, first = arguments
        source, into = _pointers(context, builder, signature.args[:2], arrays, first)
        zeros = ir.Constant(FLOATS, [0.0] * BLOCK)
        mask = builder.fcmp_ordered(">=", _load(builder, source, 4), zeros)
        builder.store(builder.bitcast(mask, I64), into).align = 1
        return context.get_dummy_value()

    return types.void(x, packed, first), emit


@intrinsic
def _add_block(_: Any, total: Any, packed: Any, first: Any, scale: Any) -> Any:
    """`add` for the BLOCK elements from `first`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *arrays, first, scale = arguments
        into, source = _pointers(context, builder, signature.args[:2], arrays, first)
        ones = builder.uitofp(builder.bitcast(_load(builder, source, 1), MASK), FLOATS)
        twice = builder.fmul(ones, _splat(builder, builder.fadd(scale, scale)))
        moved = builder.fadd(_load(builder, into, 4), twice)
        builder.store(builder.fsub(moved, _splat(builder, scale)), into).align = 4
        return context.get_dummy_value()

    return types.void(total, packed, first, scale), emit


@njit("void(float32[::1], uint8[::1])", **OPTIONS)
def pack(x, packed):  # type: ignore[no-untyped-def]
    """The bits of `x`, [n], into `packed`, [ceil(n / 8)]; the last byte is filled with 0."""
    whole = x.size - x.size % BLOCK
    for first in range(0, whole, BLOCK):
        _pack_block(x, packed, first)  # type: ignore[call-arg]
    packed[whole // BYTE :] = 0
    for here in range(whole, x.size):
        if x[here] >= 0:
            packed[here // BYTE] |= np.uint8(1 << (here % BYTE))


@njit("void(float32[::1], uint8[::1], float32)", **OPTIONS)
def add(total, packed, scale):  # type: ignore[no-untyped-def]
    """Add `scale` to `total`, [n], where the bit is 1, and subtract it elsewhere.

    In two steps, 2 scale and -scale: other roundings would not be those of compressors.packing.
    """
    whole = total.size - total.size % BLOCK
    for first in range(0, whole, BLOCK):
        _add_block(total, packed, first, scale)  # type: ignore[call-arg]
    for here in range(whole, total.size):
        bit = np.float32((packed[here // BYTE] >> np.uint8(here % BYTE)) & 1)
        total[here] = np.float32(total[here] + bit * (scale + scale)) - scale


@njit("float64(float32[::1])", fastmath=SUM, **OPTIONS)
def magnitudes(x):  # type: ignore[no-untyped-def]
    """The sum of |x|, in float64."""
    total = 0.0
    for value in x:
        total += abs(np.float64(value))
    return total


@njit("float64(float32[::1])", fastmath=SUM, **OPTIONS)
def squares(x):  # type: ignore[no-untyped-def]
    """The sum of squares, in float64."""
    total = 0.0
    for value in x:
        total += np.float64(value) * np.float64(value)
    return total
