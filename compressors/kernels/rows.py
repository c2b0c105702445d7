"""Vector instructions on SIDE rows of matrices at a time, for compressors.kernels.lowrank."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from compressors.kernels.vectors import (
    F32,
    I64,
    LANES,
    intrinsic,
    load,
    splat,
    store,
    store_past_cache,
)

SIDE = 4  # rows per group
FLOATS = ir.VectorType(F32, LANES)


def rows_of(context: Any, builder: Any, kind: Any, array: Any, first: Any) -> list[Any]:
    """Return pointers to SIDE rows of a matrix, from row `first` on."""
    matrix = context.make_array(kind)(context, builder, array)
    width = cgutils.unpack_tuple(builder, matrix.shape)[1]
    offsets = [builder.mul(builder.add(first, I64(row)), width) for row in range(SIDE)]
    return [builder.gep(matrix.data, [offset]) for offset in offsets]


def weights_of(context: Any, builder: Any, kind: Any, array: Any) -> list[list[Any]]:
    """Return [SIDE, SIDE] vectors; each holds copies of one weight."""
    data = context.make_array(kind)(context, builder, array).data
    found = [
        splat(builder, builder.load(builder.gep(data, [I64(here)])), LANES)
        for here in range(SIDE * SIDE)
    ]
    return [found[row : row + SIDE] for row in range(0, SIDE * SIDE, SIDE)]


def at_lane(builder: Any, row: Any, here: Any) -> Any:
    return builder.bitcast(builder.gep(row, [here]), FLOATS.as_pointer())


def _added(builder: Any, total: Any, weights: list[Any], parts: list[Any]) -> Any:
    """Return `total` plus `parts` times `weights`; vectors and single elements get equal bits."""
    kind = total.type
    name = f"v{LANES}f32" if kind == FLOATS else "f32"
    fused = builder.module.declare_intrinsic(
        f"llvm.fmuladd.{name}", (), ir.FunctionType(kind, [kind] * 3)
    )
    for part, weight in zip(parts, weights, strict=True):
        total = builder.call(fused, [part, weight, total])
    return total


@intrinsic
def mix(_, into, row, source, other, weights, first, end):  # type: ignore[no-untyped-def]
    """Add weights times SIDE rows of `source` to SIDE rows of `into`, from column `first` on.

    The rows begin at `row` and `other`; `weights` is [SIDE, SIDE], flat. Columns are processed in
    groups of LANES. Those left over before `end` are not touched.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, row, source, other, weights, first, end = arguments
        kinds = signature.args
        totals = rows_of(context, builder, kinds[0], into, row)
        parts = rows_of(context, builder, kinds[2], source, other)
        factors = weights_of(context, builder, kinds[4], weights)
        count = builder.sdiv(builder.sub(end, first), I64(LANES))
        with cgutils.for_range(builder, count) as loop:
            here = builder.add(first, builder.mul(loop.index, I64(LANES)))
            loaded = [load(builder, at_lane(builder, part, here), 4) for part in parts]
            for total, factor in zip(totals, factors, strict=True):
                pointer = at_lane(builder, total, here)
                value = _added(builder, load(builder, pointer, 4), factor, loaded)
                store(builder, value, pointer, 4)
        return context.get_dummy_value()

    return types.void(into, row, source, other, weights, first, end), emit


@intrinsic
def set_past_cache(_, out, row, source, weights, taken, first, end):  # type: ignore[no-untyped-def]
    """Set out[row] to the weighted sum of SIDE rows of `source`, past the cache.

    Columns from `first` on are processed in groups of LANES. Those left over before `end` are not
    touched. The address of out[row, first] must be a multiple of ALIGNMENT. The sum is also
    subtracted from taken[row], unless that is `out`.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, row, source, weights, taken, first, end = arguments
        kinds = signature.args
        into, lessened = (
            rows_of(context, builder, kind, array, row)[0]
            for kind, array in ((kinds[0], out), (kinds[4], taken))
        )
        parts = rows_of(context, builder, kinds[2], source, I64(0))
        factors = weights_of(context, builder, kinds[3], weights)[0]
        takes = builder.icmp_unsigned("!=", into, lessened)
        count = builder.sdiv(builder.sub(end, first), I64(LANES))
        with cgutils.for_range(builder, count) as loop:
            here = builder.add(first, builder.mul(loop.index, I64(LANES)))
            loaded = [load(builder, at_lane(builder, part, here), 4) for part in parts]
            total = _added(builder, ir.Constant(FLOATS, None), factors, loaded)
            store_past_cache(builder, total, at_lane(builder, into, here))
            with builder.if_then(takes):
                pointer = at_lane(builder, lessened, here)
                left = builder.fsub(load(builder, pointer, 4), total)
                store(builder, left, pointer, 4)
        return context.get_dummy_value()

    return types.void(out, row, source, weights, taken, first, end), emit


@intrinsic
def sum_at(_: Any, source: Any, weights: Any, column: Any):  # type: ignore[no-untyped-def]
    """Return one element of the sum that `set_past_cache` writes."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, weights, column = arguments
        rows = rows_of(context, builder, signature.args[0], source, I64(0))
        data = context.make_array(signature.args[1])(context, builder, weights).data
        factors = [builder.load(builder.gep(data, [I64(b)])) for b in range(SIDE)]
        parts = [builder.load(builder.gep(row, [column])) for row in rows]
        return _added(builder, ir.Constant(F32, 0.0), factors, parts)

    return types.float32(source, weights, column), emit
