"""Building blocks of CPU kernels: vectors of BLOCK elements, bit operations, raw memory.

Bits are packed eight per byte, the first in the lowest bit.
"""

import os
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

intrinsic: Any = extending.intrinsic  # the stubs lack the typing context argument
BLOCK, BYTE = 64, 8  # elements per block; bits per byte
CHUNK = 4096  # elements that stay in the L1 cache for several passes
LANES = 16  # elements of a vector register
ALIGNMENT = 32  # bytes; alignment of stores past the cache

F32, I8, I16, I32, I64 = ir.FloatType(), *map(ir.IntType, (8, 16, 32, 64))
FLOATS, BYTES = ir.VectorType(F32, BLOCK), ir.VectorType(I8, BLOCK)
MASK = ir.VectorType(ir.IntType(1), BLOCK)

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "cache": "NUMBA_CACHE_DIR" in os.environ,
}
SUM = {"reassoc", "nsz"}  # fast-math flags for vector sums; NaN and infinity are kept


def at(context: Any, builder: Any, kind: Any, array: Any, first: Any, vector: Any) -> Any:
    """Return a pointer to the `vector` that begins at element `first` of `array`."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [first]), vector.as_pointer())


def load(builder: Any, pointer: Any, align: int) -> Any:
    loaded = builder.load(pointer)
    loaded.align = align
    return loaded


def store(builder: Any, value: Any, pointer: Any, align: int) -> None:
    builder.store(value, pointer).align = align


def store_past_cache(builder: Any, value: Any, pointer: Any) -> None:
    """Store a vector past the cache at a multiple of ALIGNMENT; `settle` before others read it."""
    written = builder.store(value, pointer)
    written.align = ALIGNMENT
    written.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))


def splat(builder: Any, value: Any, lanes: int = BLOCK) -> Any:
    """Return a vector of `lanes` copies of `value`."""
    vector = ir.VectorType(value.type, lanes)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, I32(0))
    zeros = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return builder.shuffle_vector(one, one, zeros)


@intrinsic
def bytes_at(_: Any, address: Any) -> Any:
    """Return a pointer to uint8 at an address, for numba.carray."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint8)(address), emit


@intrinsic
def floats_at(_: Any, address: Any) -> Any:
    """Return a pointer to float32 at an address, for numba.carray."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(address), emit


@intrinsic
def ints_at(_: Any, address: Any) -> Any:
    """Return a pointer to int32 at an address, for numba.carray."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.int32)(address), emit


@intrinsic
def bits_of(_: Any, x: Any) -> Any:
    """Return the bits of a float32 as an int32."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], I32)

    return types.int32(x), emit


@intrinsic
def float_of(_: Any, bits: Any) -> Any:
    """Return the float32 with the given 32 bits."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], F32)

    return types.float32(bits), emit


@intrinsic
def store_plane(_: Any, codes: Any, first: Any, bit: Any, packed: Any, byte: Any) -> Any:
    """Write bit number `bit` of the BLOCK codes from `first` to packed[byte:]."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        codes, first, bit, packed, byte = arguments
        source = at(context, builder, signature.args[0], codes, first, BYTES)
        into = at(context, builder, signature.args[3], packed, byte, I64)
        chosen = splat(builder, builder.shl(I8(1), builder.trunc(bit, I8)))
        found = builder.and_(load(builder, source, 1), chosen)
        mask = builder.icmp_unsigned("!=", found, ir.Constant(BYTES, [0] * BLOCK))
        store(builder, builder.bitcast(mask, I64), into, 1)
        return context.get_dummy_value()

    return types.void(codes, first, bit, packed, byte), emit


@intrinsic
def load_plane(_: Any, packed: Any, byte: Any, bit: Any, codes: Any, first: Any) -> Any:
    """Set bit number `bit` of the BLOCK codes from `first` where packed[byte:] has a 1."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        packed, byte, bit, codes, first = arguments
        source = at(context, builder, signature.args[0], packed, byte, I64)
        into = at(context, builder, signature.args[3], codes, first, BYTES)
        mask = builder.bitcast(load(builder, source, 1), MASK)
        chosen = splat(builder, builder.shl(I8(1), builder.trunc(bit, I8)))
        there = builder.select(mask, chosen, ir.Constant(BYTES, [0] * BLOCK))
        store(builder, builder.or_(load(builder, into, 1), there), into, 1)
        return context.get_dummy_value()

    return types.void(packed, byte, bit, codes, first), emit


@intrinsic
def trailing_zeros(_: Any, bits: Any) -> Any:
    """Return the number of trailing zero bits of an unsigned integer; undefined for 0."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(bits), emit


@intrinsic
def ones(_: Any, bits: Any) -> Any:
    """Return the number of set bits of an unsigned integer."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(bits), emit


@intrinsic
def high_product(_: Any, x: Any, y: Any) -> Any:
    """Return the upper half of the product of two uint64."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        x, y = (builder.zext(argument, wide) for argument in arguments)
        return builder.trunc(builder.lshr(builder.mul(x, y), wide(64)), I64)

    return types.uint64(x, y), emit


@intrinsic
def copy_past_cache(_: Any, source: Any, out: Any, first: Any) -> Any:
    """Copy `source`, a multiple of BLOCK long, past the cache to out[first:], which is aligned."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, out, first = arguments
        kinds = signature.args
        count = context.make_array(kinds[0])(context, builder, source).nitems
        with cgutils.for_range(builder, builder.sdiv(count, I64(BLOCK))) as loop:
            here = builder.mul(loop.index, I64(BLOCK))
            value = load(builder, at(context, builder, kinds[0], source, here, FLOATS), 4)
            place = builder.add(first, here)
            store_past_cache(builder, value, at(context, builder, kinds[1], out, place, FLOATS))
        return context.get_dummy_value()

    return types.void(source, out, first), emit


@intrinsic
def settle(_: Any):  # type: ignore[no-untyped-def]
    """Execute a fence that makes stores past the cache visible to all threads."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit
