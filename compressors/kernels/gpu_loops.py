"""Loops on a GPU, in Triton; `compressors.kernels.gpu` decides whether they are used."""

import triton
import triton.language as tl

BLOCK = 2048  # elements a program of the selection handles
BYTES = 256  # packed bytes a program of the signs handles
SLOTS = 256  # of a block's selection: one in eight
INTERPRETS = triton.knobs.runtime.interpret
# Products are rounded before they are added, as everywhere else; the interpreter does so anyway.
EXACT = {} if INTERPRETS else {"enable_fp_fusion": False}


@triton.jit
def passes(v, threshold):
    """1 if v is not 0 and |v| >= `threshold` or NaN, else 0; int32, so that scans can add it up."""
    return ((tl.abs(v) < threshold) == 0).to(tl.int32) * (v != 0).to(tl.int32)


@triton.jit
def add_count(
    total, added, n, threshold, counts, places, found, with_added: tl.constexpr,
    slots: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Add `added` to `total`; how many of every `size` elements pass, and the first `slots`."""
    block = tl.program_id(0)
    at = block * size + tl.arange(0, size)
    inside = at < n
    v = tl.load(total + at, mask=inside, other=0.0)
    if with_added:
        v += tl.load(added + at, mask=inside, other=0.0)
        tl.store(total + at, v, mask=inside)
    hit = passes(v, tl.load(threshold))
    tl.store(counts + block, tl.sum(hit, 0))
    slot = tl.cumsum(hit, 0) - hit
    kept = (hit != 0) & (slot < slots)
    first = block.to(tl.int64) * slots
    tl.store(places + first + slot, at, mask=kept)
    tl.store(found + first + slot, v, mask=kept)


@triton.jit
def take_out(
    total, n, threshold, ends, places, found, index, values, capacity, erase: tl.constexpr,
    slots: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Copy what passes to `index` and `values`, ascending; what is beyond `capacity` is left.

    `ends` are the running sums of the counts, this block's included. With `erase`, what is copied
    becomes zero. A block that had more than its slots is looked through again.
    """
    block = tl.program_id(0)
    begin = tl.load(ends + block - 1, mask=block > 0, other=0)
    count = tl.load(ends + block) - begin
    if count <= slots:
        slot = tl.arange(0, slots)
        source = block.to(tl.int64) * slots + slot
        fits = (slot < count) & (begin + slot < capacity)
        place = tl.load(places + source, mask=fits, other=0)
        tl.store(index + begin + slot, place, mask=fits)
        tl.store(values + begin + slot, tl.load(found + source, mask=fits, other=0.0), mask=fits)
        if erase:
            tl.store(total + place, tl.zeros([slots], tl.float32), mask=fits)
    else:
        at = block * size + tl.arange(0, size)
        v = tl.load(total + at, mask=at < n, other=0.0)
        hit = passes(v, tl.load(threshold))
        to = begin + tl.cumsum(hit, 0) - hit
        kept = (hit != 0) & (to < capacity)
        tl.store(index + to, at, mask=kept)
        tl.store(values + to, v, mask=kept)
        if erase:
            tl.store(total + at, tl.zeros([size], tl.float32), mask=kept)


@triton.jit
def pack_signs(x, n, packed, size: tl.constexpr):
    """The bits of x >= 0, eight to a byte, the first element in the lowest."""
    byte = tl.program_id(0) * size + tl.arange(0, size)
    bit = tl.arange(0, 8)
    at = byte[:, None] * 8 + bit[None, :]
    positive = (tl.load(x + at, mask=at < n, other=-1.0) >= 0).to(tl.int32)
    tl.store(packed + byte, tl.sum(positive << bit[None, :], 1).to(tl.uint8), mask=byte * 8 < n)


@triton.jit
def add_signs(total, packed, scale, n, size: tl.constexpr):
    """Add `scale` to `total` where the bit is set, -scale elsewhere."""
    at = tl.program_id(0) * size + tl.arange(0, size)
    inside = at < n
    byte = tl.load(packed + at // 8, mask=inside, other=0).to(tl.int32)
    sign = 2 * ((byte >> (at % 8)) & 1) - 1
    v = tl.load(total + at, mask=inside, other=0.0)
    tl.store(total + at, v + sign.to(tl.float32) * tl.load(scale), mask=inside)


@triton.jit
def block_of(at, length, ends, blocks, block: tl.constexpr, rounds: tl.constexpr):
    """The block that each element is in.

    Of `block` elements each or, where that is 0, of `length`; with `rounds`, by `ends`, `blocks`
    ascending numbers that are looked through by halves.
    """
    if block > 0:
        return at // block
    if rounds == 0:
        return at // length
    low = tl.zeros_like(at)
    high = low + (blocks - 1)
    for _ in tl.static_range(rounds):
        middle = (low + high) // 2
        beyond = at >= tl.load(ends + middle)
        low = tl.where(beyond, tl.minimum(middle + 1, high), low)
        high = tl.where(beyond, high, middle)
    return low


@triton.jit
def drawn(at, first, second):
    """The 16 bits of compressors.counter_rng at each position, int32."""
    x = ((at // 2).to(tl.uint32) * 0x9E3779B1) ^ first.to(tl.uint32)
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ second.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = x ^ (x >> 15)
    return ((x >> (16 * (at % 2)).to(tl.uint32)) & 0xFFFF).to(tl.int32)


@triton.jit
def norms(v, levels, block: tl.constexpr, squared: tl.constexpr, size: tl.constexpr):
    """Of every `block` elements of v, [size, 8], the norm over the levels; [8 size / block]."""
    parts = tl.reshape(v, [8 * size // block, block])
    if squared:
        wide = parts.to(tl.float64)
        norm = tl.sqrt(tl.sum(wide * wide, 1)).to(tl.float32)
    else:  # by bits, so that NaN is the largest
        largest = tl.max(tl.abs(parts).to(tl.int32, bitcast=True), 1)
        norm = largest.to(tl.float32, bitcast=True)
    return tl.div_rn(norm, tl.zeros_like(norm) + levels)


@triton.jit(do_not_specialize=["first", "second"])
def add_round(
    x, added, n, whole, steps, length, ends, blocks, first, second, packed, rest,
    levels: tl.constexpr, block: tl.constexpr, rounds: tl.constexpr, norm: tl.constexpr,
    width: tl.constexpr, with_added: tl.constexpr, keep: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Codes of x += added by stochastic rounding, packed as compressors.packing does.

    Of elements beyond the last 64 that are whole, codes in `rest`. `steps` are given or, where
    `norm` is 1 or 2, become the max or l2 norm of a block over the levels. With `keep`, x is left
    with the sum less what codes stand for.
    """
    row = tl.program_id(0) * size + tl.arange(0, size)
    bit = tl.arange(0, 8)
    at = row[:, None] * 8 + bit[None, :]
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    if with_added:
        v += tl.load(added + at, mask=inside, other=0.0)
    if norm > 0:
        own = norms(v, levels, block, norm == 2, size)
        number = tl.program_id(0) * (8 * size // block) + tl.arange(0, 8 * size // block)
        tl.store(steps + number, own, mask=number < blocks)
        spread = tl.broadcast_to(own[:, None], [8 * size // block, block])
        step = tl.reshape(spread, [size, 8])
    else:
        of = block_of(at, length, ends, blocks, block, rounds)
        step = tl.load(steps + of, mask=inside, other=1.0)
    step = tl.where(step < 7.888609052210118e-31, 7.888609052210118e-31, step)  # 2**-100
    part = v * tl.div_rn(tl.full([size, 8], 65536.0, tl.float32), step)
    part = tl.minimum(tl.maximum(part, -65536.0 * levels), 65536.0 * levels)
    low = tl.floor(part)
    over = part - low
    near = low.to(tl.int32)
    near += ((over > 0.5) | ((over == 0.5) & (near % 2 != 0))).to(tl.int32)  # half to even
    codes = (drawn(at, first, second) + near + 65536 * levels) >> 16
    if width == 8:
        tl.store(packed + at, codes.to(tl.uint8), mask=inside)
    else:
        for plane in tl.static_range(width):
            byte = tl.sum(((codes >> plane) & 1) << bit[None, :], 1)
            where = (row // 8) * (8 * width) + 8 * plane + row % 8
            tl.store(packed + where, byte.to(tl.uint8), mask=row * 8 < whole)
        tl.store(rest + (at - whole), codes.to(tl.uint8), mask=inside & (at >= whole))
    if keep:
        known = tl.abs(step) < float("inf")  # of a block that is not finite nothing is taken
        v -= (codes - levels).to(tl.float32) * tl.where(known, step, 0.0)
    if keep or with_added:
        tl.store(x + at, v, mask=inside)


@triton.jit
def sum_codes(
    total, n, length, ends, blocks, codes, steps, levels: tl.constexpr, onto: tl.constexpr,
    block: tl.constexpr, rounds: tl.constexpr, width: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Add up what workers' `codes` and `steps`, a tuple each, stand for, in their order.

    Of n elements, a multiple of 64 where codes have fewer than 8 bits.
    """
    row = tl.program_id(0) * size + tl.arange(0, size)
    bit = tl.arange(0, 8)
    at = row[:, None] * 8 + bit[None, :]
    inside = at < n
    of = block_of(at, length, ends, blocks, block, rounds)
    v = tl.zeros([size, 8], tl.float32)
    if onto:
        v = tl.load(total + at, mask=inside, other=0.0)
    for worker in tl.static_range(len(codes)):
        if width == 8:
            code = tl.load(codes[worker] + at, mask=inside, other=0).to(tl.int32)
        else:
            code = tl.zeros([size, 8], tl.int32)
            for plane in tl.static_range(width):
                where = (row // 8) * (8 * width) + 8 * plane + row % 8
                byte = tl.load(codes[worker] + where, mask=row * 8 < n, other=0).to(tl.int32)
                code += ((byte[:, None] >> bit[None, :]) & 1) << plane
        step = tl.load(steps[worker] + of, mask=inside, other=0.0)
        v += (code - levels).to(tl.float32) * step
    tl.store(total + at, v, mask=inside)


@triton.jit
def sum_rest(
    total, n, whole, length, ends, blocks, codes, steps, levels: tl.constexpr, onto: tl.constexpr,
    rounds: tl.constexpr, width: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """As `sum_codes`, of the elements from `whole` on, whose bits are not in bytes of their own."""
    at = whole + tl.arange(0, size)
    inside = at < n
    of = block_of(at, length, ends, blocks, 0, rounds)
    v = tl.zeros([size], tl.float32)
    if onto:
        v = tl.load(total + at, mask=inside, other=0.0)
    for worker in tl.static_range(len(codes)):
        code = tl.zeros([size], tl.int32)
        for plane in tl.static_range(width):
            bit = plane * (n - whole) + (at - whole)
            byte = tl.load(codes[worker] + whole // 8 * width + bit // 8, mask=inside, other=0)
            code += ((byte.to(tl.int32) >> (bit % 8)) & 1) << plane
        step = tl.load(steps[worker] + of, mask=inside, other=0.0)
        v += (code - levels).to(tl.float32) * step
    tl.store(total + at, v, mask=inside)


@triton.jit
def add_pack_measure(
    total, added, n, packed, sums, with_added: tl.constexpr, squared: tl.constexpr,
    size: tl.constexpr,
):  # fmt: skip
    """`pack_signs` of total += added; the sum of magnitudes or squares of each program, float64."""
    byte = tl.program_id(0) * size + tl.arange(0, size)
    bit = tl.arange(0, 8)
    at = byte[:, None] * 8 + bit[None, :]
    inside = at < n
    v = tl.load(total + at, mask=inside, other=0.0)
    if with_added:
        v += tl.load(added + at, mask=inside, other=0.0)
        tl.store(total + at, v, mask=inside)
    positive = ((v >= 0) & inside).to(tl.int32)
    tl.store(packed + byte, tl.sum(positive << bit[None, :], 1).to(tl.uint8), mask=byte * 8 < n)
    wide = v.to(tl.float64)
    tl.store(sums + tl.program_id(0), tl.sum(wide * wide if squared else tl.abs(wide)))


@triton.jit
def sum_signs(total, n, packed, scales, onto: tl.constexpr, size: tl.constexpr):
    """Add up every worker's signs, of the tuple `packed`, times its scale, in their order."""
    byte = tl.program_id(0) * size + tl.arange(0, size)
    bit = tl.arange(0, 8)
    at = byte[:, None] * 8 + bit[None, :]
    inside = at < n
    v = tl.zeros([size, 8], tl.float32)
    if onto:
        v = tl.load(total + at, mask=inside, other=0.0)
    for worker in tl.static_range(len(packed)):
        signs = tl.load(packed[worker] + byte, mask=byte * 8 < n, other=0).to(tl.int32)
        sign = 2 * ((signs[:, None] >> bit[None, :]) & 1) - 1
        v += sign.to(tl.float32) * tl.load(scales + worker)
    tl.store(total + at, v, mask=inside)


@triton.jit
def add_cast(
    total, added, n, inverse, size_, wire, largest, with_added: tl.constexpr, keep: tl.constexpr,
    size: tl.constexpr,
):  # fmt: skip
    """(total += added) times `inverse` in the type of `wire`; with `keep`, less what that took.

    The bits of the largest magnitude of each program's sum, int32.
    """
    at = tl.program_id(0) * size + tl.arange(0, size)
    inside = at < n
    v = tl.load(total + at, mask=inside, other=0.0)
    if with_added:
        v += tl.load(added + at, mask=inside, other=0.0)
    tl.store(largest + tl.program_id(0), tl.max(tl.abs(v).to(tl.int32, bitcast=True), 0))
    half = (v * inverse).to(wire.dtype.element_ty)
    tl.store(wire + at, half, mask=inside)
    if keep:
        tl.store(total + at, v - half.to(tl.float32) * size_, mask=inside)
    elif with_added:
        tl.store(total + at, v, mask=inside)


@triton.jit
def add_measure(total, added, n, largest, squares, with_added: tl.constexpr, size: tl.constexpr):
    """Add; the bits of the largest magnitude and the sum of squares, float64, of each program."""
    at = tl.program_id(0) * size + tl.arange(0, size)
    inside = at < n
    v = tl.load(total + at, mask=inside, other=0.0)
    if with_added:
        v += tl.load(added + at, mask=inside, other=0.0)
        tl.store(total + at, v, mask=inside)
    tl.store(largest + tl.program_id(0), tl.max(tl.abs(v).to(tl.int32, bitcast=True), 0))
    wide = v.to(tl.float64)
    tl.store(squares + tl.program_id(0), tl.sum(wide * wide, 0))
