"""Selection by magnitude in machine code: numba loops around blocks of vector instructions.

Magnitudes are the bits of |x| as an integer, as in compressors.topk_select. Loops are not parallel,
because the threads of numba's prange do not survive a fork. Positions are int32, so n < 2**31.
"""

import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

BLOCK, LANES = 64, 16  # elements per block; elements of a vector register
MAGNITUDE = 0x7FFFFFFF  # mask of a float32's bits without sign

I16, I32, I64, F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
MASK = ir.VectorType(ir.IntType(1), LANES)

OPTIONS: dict[str, Any] = {"nogil": True, "cache": "NUMBA_CACHE_DIR" in os.environ}
FOUND = "UniTuple(int64, 2)"
OUTPUT = "int32, boolean, boolean, int64, int32[::1], float32[::1], int64"


def _at(context: Any, builder: Any, kind: Any, array: Any, first: Any, vector: Any) -> Any:
    """Return a pointer to the `vector` that begins at element `first` of `array`."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [first]), vector.as_pointer())


def _load(builder: Any, pointer: Any) -> Any:
    loaded = builder.load(pointer)
    loaded.align = 4
    return loaded


def _store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, pointer).align = 4


def _splat(builder: Any, value: Any) -> Any:
    """Return a vector of LANES copies of one i32."""
    one = builder.insert_element(ir.Constant(INTS, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(INTS, [0] * LANES))


def _exceeds(builder: Any, floats: Any, bound: Any) -> Any:
    magnitude = builder.and_(builder.bitcast(floats, INTS), INTS([MAGNITUDE] * LANES))
    return builder.icmp_signed(">", magnitude, bound)


def _compress(builder: Any, vector: Any, mask: Any) -> Any:
    """Move the elements under `mask` to the front of a vector; those after them are undefined."""
    kind, name = vector.type, "f32" if vector.type is FLOATS else "i32"
    called = f"llvm.experimental.vector.compress.v{LANES}{name}"
    function = builder.module.declare_intrinsic(
        called, (), ir.FunctionType(kind, [kind, MASK, kind])
    )
    return builder.call(function, [vector, mask, ir.Constant(kind, ir.Undefined)])


@intrinsic
def add_block(_: Any, total: Any, x: Any, first: Any) -> Any:
    """Add `x` to `total` for the BLOCK elements from `first` on."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, x, first = arguments
        for lane in range(0, BLOCK, LANES):
            here = builder.add(first, I64(lane))
            into = _at(context, builder, signature.args[0], total, here, FLOATS)
            other = _at(context, builder, signature.args[1], x, here, FLOATS)
            _store(builder, builder.fadd(_load(builder, into), _load(builder, other)), into)
        return context.get_dummy_value()

    return types.void(total, x, first), emit


@intrinsic
def clear_block(_: Any, x: Any, first: Any) -> Any:
    """Set the BLOCK elements of `x` from `first` on to zero."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, first = arguments
        for lane in range(0, BLOCK, LANES):
            into = _at(
                context, builder, signature.args[0], x, builder.add(first, I64(lane)), FLOATS
            )
            _store(builder, ir.Constant(FLOATS, [0.0] * LANES), into)
        return context.get_dummy_value()

    return types.void(x, first), emit


@intrinsic
def exceeding(_: Any, x: Any, first: Any, bound: Any) -> Any:
    """Return a uint64 with a bit per element of the BLOCK from `first`: its magnitude > `bound`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, first, bound = arguments
        bounds, found = _splat(builder, bound), I64(0)
        for lane in range(0, BLOCK, LANES):
            here = builder.add(first, I64(lane))
            floats = _load(builder, _at(context, builder, signature.args[0], x, here, FLOATS))
            bits = builder.bitcast(_exceeds(builder, floats, bounds), I16)
            found = builder.or_(found, builder.shl(builder.zext(bits, I64), I64(lane)))
        return found

    return types.uint64(x, first, bound), emit


@intrinsic
def _trailing_zeros(_: Any, bits: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(bits), emit


@intrinsic
def _compress_block(
    _: Any, x: Any, first: Any, bound: Any, erase: Any, index: Any, values: Any, count: Any
) -> Any:
    """Do the work of `_scan_block` with the processor's compress instruction."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, first, bound, erase, index, values, count = arguments
        kinds = signature.args
        bounds, vectors = _splat(builder, bound), []
        for lane in range(0, BLOCK, LANES):
            here = builder.add(first, I64(lane))
            floats = _load(builder, _at(context, builder, kinds[0], x, here, FLOATS))
            vectors.append((lane, floats, _exceeds(builder, floats, bounds)))
        any_bits = I16(0)
        for _, _, mask in vectors:
            any_bits = builder.or_(any_bits, builder.bitcast(mask, I16))
        before = builder.block
        with builder.if_then(builder.icmp_unsigned("!=", any_bits, I16(0)), likely=False):
            base = _splat(builder, builder.trunc(first, I32))
            total = count
            for lane, floats, mask in vectors:
                where = builder.add(base, INTS([lane + i for i in range(LANES)]))
                for vector, kind, out in ((where, kinds[4], index), (floats, kinds[5], values)):
                    into = _at(context, builder, kind, out, total, vector.type)
                    _store(builder, _compress(builder, vector, mask), into)
                hits = builder.ctpop(builder.bitcast(mask, I16))
                total = builder.add(total, builder.zext(hits, I64))
            with builder.if_then(erase):
                zeros = ir.Constant(FLOATS, [0.0] * LANES)
                for lane, floats, mask in vectors:
                    into = _at(context, builder, kinds[0], x, builder.add(first, I64(lane)), FLOATS)
                    _store(builder, builder.select(mask, zeros, floats), into)
            inside = builder.block
        result = builder.phi(I64)
        result.add_incoming(count, before)
        result.add_incoming(total, inside)
        return result

    return types.int64(x, first, bound, erase, index, values, count), emit


@njit(**OPTIONS)
def _scan_block(x, first, bound, erase, index, values, count):  # type: ignore[no-untyped-def]
    """Append the elements above `bound` of the BLOCK from `first` to `index` and `values`.

    Return the new count. With `erase`, set them to zero in `x`.
    """
    found = exceeding(x, first, bound)  # type: ignore[call-arg,var-annotated]
    while found != 0:
        here = first + _trailing_zeros(found)  # type: ignore[call-arg]
        index[count] = here
        values[count] = x[here]
        if erase:
            x[here] = 0
        count += 1
        found &= found - np.uint64(1)
    return count


@njit(**OPTIONS)
def _scan_rest(x, first, bound, erase, index, values, count):  # type: ignore[no-untyped-def]
    """Do the work of `_scan_block` from `first` to the end, one by one."""
    keys = x.view(np.int32)
    for here in range(first, x.size):
        if (keys[here] & np.int32(MAGNITUDE)) > bound:
            index[count] = here
            values[count] = x[here]
            if erase:
                x[here] = 0
            count += 1
    return count


@njit(f"{FOUND}(float32[::1], {OUTPUT})", **OPTIONS)
def collect(x, bound, compress, erase, first, index, values, count):  # type: ignore[no-untyped-def]
    """Append positions and values of elements of `x` above `bound`, from `first` on, ascending.

    Return the position to continue at and the new count. The search stops before the end of `x` if
    fewer than BLOCK places are left in `index` and `values`. Places after the count are undefined.
    With `erase`, set the elements to zero in `x`.
    """
    room = min(index.size, values.size) - BLOCK
    while first + BLOCK <= x.size and count <= room:
        if compress:
            count = _compress_block(x, first, bound, erase, index, values, count)  # type: ignore[call-arg]
        else:
            count = _scan_block(x, first, bound, erase, index, values, count)
        first += BLOCK
    if first + BLOCK > x.size and count <= room:
        count = _scan_rest(x, first, bound, erase, index, values, count)
        first = x.size
    return first, count


@njit(f"{FOUND}(float32[::1], float32[::1], boolean, {OUTPUT})", **OPTIONS)
def add_collect(total, x, clear, bound, compress, erase, first, index, values, count):  # type: ignore[no-untyped-def]
    """Do the work of `collect` on total += x, in one pass that reads and writes `total` once.

    With `clear`, set x to zero. That takes no more time, because x is in the cache.
    """
    room = min(index.size, values.size) - BLOCK
    while first + BLOCK <= x.size and count <= room:
        add_block(total, x, first)  # type: ignore[call-arg]
        if clear:
            clear_block(x, first)  # type: ignore[call-arg]
        if compress:
            count = _compress_block(total, first, bound, erase, index, values, count)  # type: ignore[call-arg]
        else:
            count = _scan_block(total, first, bound, erase, index, values, count)
        first += BLOCK
    if first + BLOCK > x.size and count <= room:
        for here in range(first, x.size):
            total[here] += x[here]
            if clear:
                x[here] = 0
        count = _scan_rest(total, first, bound, erase, index, values, count)
        first = x.size
    return first, count


@njit("void(float32[::1], int32[::1])", **OPTIONS)
def erase(x, where):  # type: ignore[no-untyped-def]
    """Set `x` to zero at positions `where`."""
    for here in where:
        x[here] = 0
