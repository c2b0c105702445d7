"""Packed signs in machine code: packing with the sum for their scale, adding, majority votes.

The bits are those of compressors.packing: 1 for elements >= 0. Payloads of several workers are
given by address, each of at least ceil(n / 8) bytes.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types

from compressors.kernels.vectors import (
    BLOCK,
    BYTE,
    CHUNK,
    FLOATS,
    I64,
    MASK,
    OPTIONS,
    SUM,
    at,
    bytes_at,
    intrinsic,
    load,
    splat,
    store,
)


@intrinsic
def _pack_block(_: Any, x: Any, first: Any, packed: Any, byte: Any) -> Any:
    """Write the sign bits of the BLOCK elements of `x` from `first` on to packed[byte:]."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, first, packed, byte = arguments
        source = at(context, builder, signature.args[0], x, first, FLOATS)
        into = at(context, builder, signature.args[2], packed, byte, I64)
        zeros = ir.Constant(FLOATS, [0.0] * BLOCK)
        mask = builder.fcmp_ordered(">=", load(builder, source, 4), zeros)
        store(builder, builder.bitcast(mask, I64), into, 1)
        return context.get_dummy_value()

    return types.void(x, first, packed, byte), emit


@intrinsic
def _add_block(_: Any, total: Any, first: Any, packed: Any, byte: Any, scale: Any) -> Any:
    """Do the work of `add` for BLOCK elements from `first` on, whose bits begin at packed[byte]."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, first, packed, byte, scale = arguments
        into = at(context, builder, signature.args[0], total, first, FLOATS)
        source = at(context, builder, signature.args[2], packed, byte, I64)
        mask = builder.bitcast(load(builder, source, 1), MASK)
        opposite = splat(builder, builder.fneg(scale))
        signed = builder.select(mask, splat(builder, scale), opposite)
        store(builder, builder.fadd(load(builder, into, 4), signed), into, 4)
        return context.get_dummy_value()

    return types.void(total, first, packed, byte, scale), emit


@njit(**OPTIONS)
def _clear(array):  # type: ignore[no-untyped-def]
    for here in range(array.size):  # numba takes a second to compile `array[:] = 0`
        array[here] = 0


@njit(**OPTIONS)
def _pack(x, packed):  # type: ignore[no-untyped-def]
    whole = x.size - x.size % BLOCK
    for first in range(0, whole, BLOCK):
        _pack_block(x, first, packed, first // BYTE)
    _clear(packed[whole // BYTE :])
    for here in range(whole, x.size):
        if x[here] >= 0:
            packed[here // BYTE] |= np.uint8(1 << (here % BYTE))


@njit("float64(float32[::1])", fastmath=SUM, **OPTIONS)
def magnitudes(x):  # type: ignore[no-untyped-def]
    """Return the sum of |x| in float64."""
    total = 0.0
    for here in range(x.size):  # by position, because numba's iterators do not vectorise
        total += abs(np.float64(x[here]))
    return total


@njit("float64(float32[::1])", fastmath=SUM, **OPTIONS)
def squares(x):  # type: ignore[no-untyped-def]
    """Return the sum of squares of `x` in float64."""
    total = 0.0
    for here in range(x.size):
        value = np.float64(x[here])
        total += value * value
    return total


@njit("float64(float32[::1], float32[::1], boolean, uint8[::1])", **OPTIONS)
def add_pack(total, added, squared, packed):  # type: ignore[no-untyped-def]
    """Add `added`, which may be empty, to `total`, [n], and pack the sum's signs to `packed`.

    Unused bits become 0. Return the sum of squares with `squared`, else of magnitudes, in float64.
    """
    found = 0.0
    _clear(packed[total.size // BYTE :])
    for first in range(0, total.size, CHUNK):
        part = total[first : first + CHUNK]
        if added.size:
            other = added[first : first + CHUNK]
            for here in range(part.size):
                part[here] += other[here]
        _pack(part, packed[first // BYTE : (first + part.size + BYTE - 1) // BYTE])
        found += squares(part) if squared else magnitudes(part)
    return found


@njit("void(float32[::1], uint8[::1], float32)", **OPTIONS)
def add(total, packed, scale):  # type: ignore[no-untyped-def]
    """Add `scale` to `total`, [n], where the bit of `packed` is 1, and subtract it elsewhere."""
    whole = total.size - total.size % BLOCK
    for first in range(0, whole, BLOCK):
        _add_block(total, first, packed, first // BYTE, scale)
    for here in range(whole, total.size):
        bit = (packed[here // BYTE] >> np.uint8(here % BYTE)) & 1
        total[here] += scale if bit else -scale


@njit("void(float32[::1], int64[::1], float32[::1], boolean)", **OPTIONS)
def add_all(total, payloads, scales, onto):  # type: ignore[no-untyped-def]
    """Do `add` for the payload and scale of every worker, by rank; without `onto`, clear first."""
    for first in range(0, total.size, CHUNK):
        part = total[first : first + CHUNK]
        if not onto:
            _clear(part)
        nbytes = (part.size + BYTE - 1) // BYTE
        for worker in range(payloads.size):
            packed = carray(bytes_at(payloads[worker] + first // BYTE), (nbytes,), np.uint8)
            add(part, packed, scales[worker])


@njit(**OPTIONS)
def _count(planes, carry):  # type: ignore[no-untyped-def]
    """Add bits `carry`, which is overwritten, to numbers whose binary digits are `planes`."""
    for plane in range(planes.shape[0]):
        row = planes[plane]
        for here in range(row.size):
            both = row[here] & carry[here]
            row[here] ^= carry[here]
            carry[here] = both


@njit(**OPTIONS)
def _reach(planes, least, more, equal):  # type: ignore[no-untyped-def]
    """Set bits of `more` where the numbers in `planes` are >= `least`; `equal` is work memory."""
    for here in range(more.size):
        more[here], equal[here] = 0, 255
    for plane in range(planes.shape[0] - 1, -1, -1):
        row, higher = planes[plane], np.uint8(0 if least >> plane & 1 else 255)
        for here in range(row.size):
            more[here] |= equal[here] & row[here] & higher
            equal[here] &= row[here] ^ higher
    for here in range(more.size):
        more[here] |= equal[here]


@njit("void(int64[::1], float32, float32[::1])", **OPTIONS)
def vote(payloads, scale, result):  # type: ignore[no-untyped-def]
    """Set `result`, [n], to `scale` where at least half of the workers have a 1, else -scale."""
    size, width = payloads.size, 0
    while size >> width:
        width += 1
    more, equal = np.empty(CHUNK // BYTE, np.uint8), np.empty(CHUNK // BYTE, np.uint8)
    planes = np.empty((width, CHUNK // BYTE), np.uint8)
    for first in range(0, result.size, CHUNK):
        part = result[first : first + CHUNK]
        nbytes = (part.size + BYTE - 1) // BYTE
        for plane in range(width):
            _clear(planes[plane])
        for worker in range(size):
            packed = carray(bytes_at(payloads[worker] + first // BYTE), (nbytes,), np.uint8)
            for here in range(nbytes):
                more[here] = packed[here]
            _count(planes, more)
        _reach(planes, (size + 1) // 2, more, equal)
        _clear(part)
        add(part, more, scale)
