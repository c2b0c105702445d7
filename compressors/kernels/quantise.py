"""Stochastic rounding to multiples of a step, and decoding, in machine code.

Random numbers are those of compressors.counter_rng, packed bits those of compressors.packing. Loops
use positions, because numba's iterators do not become vector instructions.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types

from compressors.kernels.vectors import (
    BLOCK,
    BYTE,
    CHUNK,
    F32,
    I8,
    I16,
    I32,
    OPTIONS,
    SUM,
    at,
    bits_of,
    bytes_at,
    float_of,
    floats_at,
    intrinsic,
    load,
    load_plane,
    splat,
    store,
    store_plane,
)

GOLDEN, FIRST, SECOND = np.uint32(0x9E3779B1), np.uint32(0x846CA68B), np.uint32(0x7FEB352D)
SEGMENT = 512  # elements per call of the random generator
TOGETHER = 32  # elements per vector of rounding
RAMP = np.arange(SEGMENT // 2 + 1, dtype=np.uint32) * GOLDEN
MAGNITUDE = np.int32(0x7FFFFFFF)
SMALLEST = np.float32(2.0**-100)  # smallest step, as in compressors.stochastic
TERNARY = 2  # bits of a code
PARTS = 16  # bits of a step's fraction, which is rounded at random
GIVEN, LARGEST, LENGTH = range(3)  # source of a step: the caller, max norm, l2 norm

WORDS: Any = np.uint32  # keeps every operation of a hash at 32 bits
WHOLE: Any = np.int32


@njit(**OPTIONS)
def _draw(start, size, keys, words):  # type: ignore[no-untyped-def]
    """Return random numbers `start` to start + size of the stream, uint16, stored in `words`."""
    spread, ramp = WORDS(WORDS(start // 2) * GOLDEN), RAMP[: (start % 2 + size + 1) // 2]
    first_key, second_key = keys[0], keys[1]
    for here in range(ramp.size):
        x = WORDS(WORDS(spread + ramp[here]) ^ first_key)
        x = WORDS(WORDS(x ^ (x >> WORDS(15))) * FIRST)
        x = WORDS(x ^ second_key)
        x = WORDS(WORDS(x ^ (x >> WORDS(16))) * SECOND)
        words[here] = WORDS(x ^ (x >> WORDS(15)))
    return words.view(np.uint16)[start % 2 : start % 2 + size]


@intrinsic
def _round_some(_: Any, part: Any, codes: Any, drawn: Any, first: Any, factor: Any, levels: Any):  # type: ignore[no-untyped-def]
    """Write codes of TOGETHER elements from `first` on, equal to those of the loop in `_round`.

    The compiler by itself would round 8 at a time, and narrow these to bytes.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        part, codes, drawn, first, factor, levels = arguments
        kinds = signature.args
        source = at(context, builder, kinds[0], part, first, ir.VectorType(F32, TOGETHER))
        into = at(context, builder, kinds[1], codes, first, ir.VectorType(I8, TOGETHER))
        numbers = at(context, builder, kinds[2], drawn, first, ir.VectorType(I16, TOGETHER))
        wholes = ir.VectorType(I32, TOGETHER)
        middle = builder.shl(builder.trunc(levels, I32), I32(PARTS))
        end = builder.sitofp(middle, F32)
        highest = splat(builder, end, TOGETHER)
        lowest = splat(builder, builder.fneg(end), TOGETHER)
        parts = builder.fmul(load(builder, source, 4), splat(builder, factor, TOGETHER))
        parts = builder.select(builder.fcmp_ordered(">", parts, lowest), parts, lowest)
        parts = builder.select(builder.fcmp_ordered("<", parts, highest), parts, highest)
        floats = parts.type
        rint = builder.module.declare_intrinsic(
            f"llvm.rint.v{TOGETHER}f32", (), ir.FunctionType(floats, [floats])
        )
        whole = builder.fptosi(builder.call(rint, [parts]), wholes)
        whole = builder.add(whole, splat(builder, middle, TOGETHER))
        whole = builder.add(whole, builder.zext(load(builder, numbers, 2), wholes))
        level = builder.lshr(whole, ir.Constant(wholes, [PARTS] * TOGETHER))
        store(builder, builder.trunc(level, ir.VectorType(I8, TOGETHER)), into, 1)
        return context.get_dummy_value()

    return types.void(part, codes, drawn, first, factor, levels), emit


@njit(**OPTIONS)
def _round(part, codes, drawn, step, levels, keep):  # type: ignore[no-untyped-def]
    """Write codes of `part`, at most SEGMENT elements, rounded with the random numbers `drawn`.

    With `keep`, subtract the decoded values from `part`, unless the step is not finite.
    """
    most, factor = np.float32(levels), np.float32(np.float32(1 << PARTS) / step)
    end, middle = np.float32(levels << PARTS), WHOLE(levels << PARTS)
    together = part.size - part.size % TOGETHER
    for first in range(0, together, TOGETHER):
        _round_some(part, codes, drawn, first, factor, levels)  # type: ignore[call-arg]
    for here in range(together, part.size):
        parts = np.float32(part[here] * factor)
        parts = parts if parts > -end else -end
        parts = parts if parts < end else end
        whole = WHOLE(WHOLE(WHOLE(np.rint(parts)) + middle) + WHOLE(drawn[here]))
        codes[here] = np.uint8(whole >> WHOLE(PARTS))
    if keep and np.isfinite(step):
        for here in range(part.size):
            level = np.float32(np.float32(codes[here]) - most)
            part[here] -= np.float32(level * step)


@njit(**OPTIONS)
def _add(total, added):  # type: ignore[no-untyped-def]
    if added.size:
        for here in range(total.size):
            total[here] += added[here]


@njit(**OPTIONS)
def _largest(x):  # type: ignore[no-untyped-def]
    """Return the bits of the largest magnitude; NaN counts as larger than infinity."""
    most = np.int32(0)
    for here in range(x.size):
        key = np.int32(bits_of(x[here]) & MAGNITUDE)
        most = key if key > most else most
    return most


@njit(fastmath=SUM, **OPTIONS)
def _squares(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for here in range(x.size):
        value = np.float64(x[here])
        total += value * value
    return total


@njit("Tuple((float32, float64))(float32[::1], float32[::1])", fastmath=SUM, **OPTIONS)
def add_measure(total, added):  # type: ignore[no-untyped-def]
    """Add `added`, which may be empty, to `total`. Return largest magnitude and sum of squares."""
    most, squares = np.int32(0), 0.0
    for first in range(0, total.size, CHUNK):
        part = total[first : first + CHUNK]
        _add(part, added[first : first + CHUNK])
        for here in range(part.size):
            key = np.int32(bits_of(part[here]) & MAGNITUDE)
            most = key if key > most else most
            value = np.float64(part[here])
            squares += value * value
    return float_of(most), squares


@njit(**OPTIONS)
def _pack_rest(codes, width, packed):  # type: ignore[no-untyped-def]
    """Pack fewer than BLOCK codes, plane by plane."""
    for byte in range(packed.size):
        packed[byte] = 0
    for bit in range(width):
        for here in range(codes.size):
            place = bit * codes.size + here
            found = (codes[here] >> np.uint8(bit)) & np.uint8(1)
            packed[place // BYTE] |= np.uint8(found << np.uint8(place % BYTE))


@njit(**OPTIONS)
def _pack_whole(codes, whole, width, packed):  # type: ignore[no-untyped-def]
    byte = 0
    for first in range(0, whole, BLOCK):
        for bit in range(width):
            store_plane(codes, first, bit, packed, byte)
            byte += BLOCK // BYTE


@njit(**OPTIONS)
def _pack_steps(codes, width, packed):  # type: ignore[no-untyped-def]
    """Pack whole groups of BLOCK codes, move the rest to the front, and return how many remain."""
    whole = codes.size - codes.size % BLOCK
    if width == TERNARY:  # a constant width is four times as fast
        _pack_whole(codes, whole, TERNARY, packed)
    else:
        _pack_whole(codes, whole, width, packed)
    for here in range(codes.size - whole):
        codes[here] = codes[whole + here]
    return codes.size - whole


@njit("void(uint8[::1], int64, int64, uint8[::1])", **OPTIONS)
def unpack(packed, width, first, codes):  # type: ignore[no-untyped-def]
    """Write codes from number `first` on, a multiple of BLOCK, to `codes`, all of it.

    `packed` was made by compressors.packing.pack. If codes.size is no multiple of BLOCK, its end
    must be the end of what was packed.
    """
    for here in range(codes.size):
        codes[here] = 0
    byte, whole = first // BLOCK * (BLOCK // BYTE) * width, codes.size // BLOCK * BLOCK
    for here in range(0, whole, BLOCK):
        for bit in range(width):
            load_plane(packed, byte, bit, codes, here)
            byte += BLOCK // BYTE
    rest = codes.size - whole
    for bit in range(width):
        for here in range(rest):
            place = bit * rest + here
            found = (packed[byte + place // BYTE] >> np.uint8(place % BYTE)) & np.uint8(1)
            codes[whole + here] |= np.uint8(found << np.uint8(bit))


@njit(
    "void(float32[::1], float32[::1], int64[::1], int64, int64, int64, uint32[::1], boolean,"
    " float32[::1], uint8[::1])",
    **OPTIONS,
)
def encode(total, added, ends, norm, levels, width, keys, keep, steps, packed):  # type: ignore[no-untyped-def]
    """Add `added` to `total`, [n], and round the sum to multiples of a step, block by block.

    Block b ends at ends[b]. `norm` says where steps[b] comes from: GIVEN, or a norm over `levels`,
    which is written. `packed` gets the multiples, in [-levels, levels], plus `levels`, in `width`
    bits. Without `keys`, rounding is to the nearest. With `keep`, `total` becomes the sum minus the
    decoded values, otherwise the sum.
    """
    words = np.empty(RAMP.size, np.uint32)
    nearest = np.full(SEGMENT, 1 << PARTS - 1, np.uint16)
    waiting, held = np.empty(SEGMENT + BLOCK, np.uint8), 0  # codes to be packed, and their number
    first = byte = 0
    for block in range(ends.size):
        stop = ends[block]
        part = total[first:stop]
        _add(part, added[first:stop])
        if norm == LARGEST:
            steps[block] = float_of(_largest(part)) / np.float32(levels)
        elif norm == LENGTH:
            steps[block] = np.float32(np.sqrt(_squares(part))) / np.float32(levels)
        if steps[block] < SMALLEST:
            steps[block] = SMALLEST
        for here in range(first, stop, SEGMENT):
            some = total[here : min(here + SEGMENT, stop)]
            drawn = nearest[: some.size]
            if keys.size:
                drawn = _draw(here, some.size, keys, words)
            codes = waiting[held : held + some.size] if width < BYTE else packed[here:stop]
            _round(some, codes, drawn, steps[block], levels, keep)
            if width < BYTE:
                count = held + some.size
                held = _pack_steps(waiting[:count], width, packed[byte:])
                byte += (count - held) // BYTE * width
        first = stop
    if width < BYTE:
        _pack_rest(waiting[:held], width, packed[byte:])


@njit(**OPTIONS)
def _add_levels(total, codes, step, most, onto):  # type: ignore[no-untyped-def]
    """Decode `codes` into `total`; with `onto`, add to it instead."""
    if onto:
        for here in range(total.size):
            total[here] += np.float32(np.float32(np.float32(codes[here]) - most) * step)
    else:
        for here in range(total.size):
            total[here] = np.float32(np.float32(np.float32(codes[here]) - most) * step)


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64, float32[::1])", **OPTIONS)
def average(payloads, scales, ends, levels, width, mean):  # type: ignore[no-untyped-def]
    """Write the mean over workers of their decoded values to `mean`, [n].

    `payloads` and `scales` are addresses of each worker's packed codes and steps, float32.
    """
    most, count = np.float32(levels), np.float32(payloads.size)
    unpacked = np.empty(payloads.size * CHUNK if width < BYTE else 0, np.uint8)
    sources = payloads.copy()  # address of each worker's codes, from number `base` on
    nbytes = (width * mean.size + BYTE - 1) // BYTE
    block = base = 0
    for first in range(0, mean.size, CHUNK):
        stop = min(first + CHUNK, mean.size)
        if width < BYTE:
            base = first
            for worker in range(payloads.size):
                packed = carray(bytes_at(payloads[worker]), (nbytes,), np.uint8)
                at = worker * CHUNK
                unpack(packed, width, first, unpacked[at : at + stop - first])
                sources[worker] = unpacked.ctypes.data + at
        here = first
        while here < stop:
            while ends[block] <= here:
                block += 1
            end = min(ends[block], stop)
            part = mean[here:end]
            for worker in range(payloads.size):
                codes = carray(bytes_at(sources[worker] + here - base), (end - here,), np.uint8)
                steps = carray(floats_at(scales[worker]), (ends.size,), np.float32)
                _add_levels(part, codes, np.float32(steps[block] / count), most, worker > 0)
            here = end
