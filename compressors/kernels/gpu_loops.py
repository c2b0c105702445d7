"""Triton kernels of signs, stochastic rounding and casts, which `compressors.kernels.gpu` calls."""

import triton
import triton.language as tl

BLOCK = 2048  # elements per program
BYTES = 256  # packed bytes per program
INTERPRETS = triton.knobs.runtime.interpret
# Round products before adding them, as on the CPU; the interpreter always does.
EXACT = {} if INTERPRETS else {"enable_fp_fusion": False}


@triton.jit
def pack_signs(x, n, packed, size: tl.constexpr):
    """Pack the bits of x >= 0, eight per byte, the first element in the lowest bit."""
    byte = tl.program_id(0) * size + tl.arange(0, size)
    bit = tl.arange(0, 8)
    at = byte[:, None] * 8 + bit[None, :]
    positive = (tl.load(x + at, mask=at < n, other=-1.0) >= 0).to(tl.int32)
    tl.store(packed + byte, tl.sum(positive << bit[None, :], 1).to(tl.uint8), mask=byte * 8 < n)


@triton.jit
def add_signs(total, packed, scale, n, size: tl.constexpr):
    """Add `scale` to `total` where the bit is set, and subtract it elsewhere."""
    at = tl.program_id(0) * size + tl.arange(0, size)
    inside = at < n
    byte = tl.load(packed + at // 8, mask=inside, other=0).to(tl.int32)
    sign = 2 * ((byte >> (at % 8)) & 1) - 1
    v = tl.load(total + at, mask=inside, other=0.0)
    tl.store(total + at, v + sign.to(tl.float32) * tl.load(scale), mask=inside)


@triton.jit
def block_of(at, length, ends, blocks, block: tl.constexpr, rounds: tl.constexpr):
    """Return the number of the block that each element is in.

    Blocks have `block` elements or, if that is 0, `length`. If `rounds` is not 0, search `ends`
    instead, the ascending ends of `blocks` blocks, by halving.
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
    """Return the 16 random bits of compressors.counter_rng at each position, as int32."""
    x = ((at // 2).to(tl.uint32) * 0x9E3779B1) ^ first.to(tl.uint32)
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ second.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = x ^ (x >> 15)
    return ((x >> (16 * (at % 2)).to(tl.uint32)) & 0xFFFF).to(tl.int32)


@triton.jit
def norms(v, levels, block: tl.constexpr, squared: tl.constexpr, size: tl.constexpr):
    """Return each block's norm over `levels`, [8 size / block]; v is [size, 8].

    The norm is l2 with `squared`, else the largest magnitude.
    """
    parts = tl.reshape(v, [8 * size // block, block])
    if squared:
        wide = parts.to(tl.float64)
        norm = tl.sqrt(tl.sum(wide * wide, 1)).to(tl.float32)
    else:  # compare bits, so that NaN is the largest
        largest = tl.max(tl.abs(parts).to(tl.int32, bitcast=True), 1)
        norm = largest.to(tl.float32, bitcast=True)
    return tl.div_rn(norm, tl.zeros_like(norm) + levels)


@triton.jit(do_not_specialize=["first", "second"])
def add_round(
    x, added, n, whole, steps, length, ends, blocks, first, second, packed, rest,
    levels: tl.constexpr, block: tl.constexpr, rounds: tl.constexpr, norm: tl.constexpr,
    width: tl.constexpr, with_added: tl.constexpr, keep: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Round x += added stochastically, and pack the codes as compressors.packing does.

    Codes of elements from `whole` on go to `rest`, unpacked. `steps` are given if `norm` is 0. If
    it is 1 or 2, each becomes the max or l2 norm of its block over the levels. With `keep`, x
    becomes the sum minus the decoded values.
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
        known = tl.abs(step) < float("inf")  # nothing is subtracted from a block with NaN or inf
        v -= (codes - levels).to(tl.float32) * tl.where(known, step, 0.0)
    if keep or with_added:
        tl.store(x + at, v, mask=inside)


@triton.jit
def digits_of(codes, row, bit, whole, levels: tl.constexpr, width: tl.constexpr):
    """Unpack rows of 8 codes to multiples of a step, float32 [rows, 8]; read rows below `whole`."""
    inside = row < whole
    code = tl.zeros([row.shape[0], 8], tl.int32)
    if width == 8:
        at = row[:, None] * 8 + bit[None, :]
        code = tl.load(codes + at, mask=inside[:, None], other=0).to(tl.int32)
    else:
        for plane in tl.static_range(width):
            where = (row // 8) * (8 * width) + 8 * plane + row % 8
            byte = tl.load(codes + where, mask=inside, other=0).to(tl.int32)
            code += ((byte[:, None] >> bit[None, :]) & 1) << plane
    # Build the float 2**23 + code from bits: a conversion takes as long as four instructions.
    return (code | 0x4B000000).to(tl.float32, bitcast=True) - (8388608.0 + levels)


@triton.jit
def sum_codes(
    total, whole, length, ends, blocks, codes, steps, levels: tl.constexpr, onto: tl.constexpr,
    alike: tl.constexpr, rounds: tl.constexpr, width: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Sum the decoded values of all workers into `total`, in order of rank.

    `codes` and `steps` are tuples with one item per worker. The sum covers 8 x `whole` elements;
    below 8 bits `whole` must be a multiple of 8. A step holds for `alike` rows of 8 elements. If
    `alike` is 0, the step of each element is searched. With `onto`, add to what `total` has.
    """
    row = tl.program_id(0) * size + tl.arange(0, size)
    bit = tl.arange(0, 8)
    inside = row < whole
    at = row[:, None] * 8 + bit[None, :]
    v = tl.zeros([size, 8], tl.float32)
    if onto:
        v = tl.load(total + at, mask=inside[:, None], other=0.0)
    for worker in tl.static_range(len(codes)):
        digits = digits_of(codes[worker], row, bit, whole, levels, width)
        if alike > 0:
            step = tl.load(steps[worker] + row // alike, mask=inside, other=0.0)
            v += digits * step[:, None]
        else:
            of = block_of(at, length, ends, blocks, 0, rounds)
            v += digits * tl.load(steps[worker] + of, mask=inside[:, None], other=0.0)
    tl.store(total + at, v, mask=inside[:, None])


@triton.jit
def of_two_bits(low, high, step, bit: tl.constexpr):
    """Decode one code of 2 bits to (code - 1) step, by choosing, which is the quickest."""
    odd = (low & (1 << bit)) != 0
    upper = (high & (1 << bit)) != 0
    return tl.where(upper, tl.where(odd, 2.0, 1.0), tl.where(odd, 0.0, -1.0)) * step


@triton.jit
def sum_two_bits(
    total, whole, codes, steps, onto: tl.constexpr, alike: tl.constexpr, size: tl.constexpr
):
    """Do the work of `sum_codes` for codes of 2 bits and equal steps in each row of 8 elements."""
    row = tl.program_id(0) * size + tl.arange(0, size)
    inside = row < whole
    at = row[:, None] * 8 + tl.arange(0, 8)[None, :]
    v = tl.zeros([size, 8], tl.float32)
    if onto:
        v = tl.load(total + at, mask=inside[:, None], other=0.0)
    a, b, c, d, e, f, g, h = columns(v)
    first = (row // 8) * 16 + row % 8
    for worker in tl.static_range(len(codes)):
        low = tl.load(codes[worker] + first, mask=inside, other=0).to(tl.int32)
        high = tl.load(codes[worker] + first + 8, mask=inside, other=0).to(tl.int32)
        step = tl.load(steps[worker] + row // alike, mask=inside, other=0.0)
        a += of_two_bits(low, high, step, 0)
        b += of_two_bits(low, high, step, 1)
        c += of_two_bits(low, high, step, 2)
        d += of_two_bits(low, high, step, 3)
        e += of_two_bits(low, high, step, 4)
        f += of_two_bits(low, high, step, 5)
        g += of_two_bits(low, high, step, 6)
        h += of_two_bits(low, high, step, 7)
    tl.store(total + at, joined(a, b, c, d, e, f, g, h), mask=inside[:, None])


@triton.jit
def sum_rest(
    total, n, whole, length, ends, blocks, codes, steps, levels: tl.constexpr, onto: tl.constexpr,
    rounds: tl.constexpr, width: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Do the work of `sum_codes` for elements from `whole` on, packed without gaps."""
    at = whole + tl.arange(0, size)
    inside = at < n
    of = block_of(at, length, ends, blocks, 0, rounds)
    v = tl.zeros([size], tl.float32)
    if onto:
        v = tl.load(total + at, mask=inside, other=0.0)
    for worker in tl.static_range(len(codes)):
        code = tl.zeros([size], tl.int32)
        if width == 8:
            code = tl.load(codes[worker] + at, mask=inside, other=0).to(tl.int32)
        else:
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
    """Add, pack signs, and write each program's sum of magnitudes or squares to `sums`, float64."""
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
def joined(a, b, c, d, e, f, g, h):
    """Join eight columns to [rows, 8], in the layout that `columns` splits."""
    even = tl.join(tl.join(a, e), tl.join(c, g))
    odd = tl.join(tl.join(b, f), tl.join(d, h))
    return tl.reshape(tl.join(even, odd), [a.shape[0], 8])


@triton.jit
def columns(v):
    """Split v, [rows, 8], into its eight columns. The inverse is `joined`."""
    even, odd = tl.split(tl.reshape(v, [v.shape[0], 2, 2, 2]))
    ae, cg = tl.split(even)
    bf, dh = tl.split(odd)
    a, e = tl.split(ae)
    b, f = tl.split(bf)
    c, g = tl.split(cg)
    d, h = tl.split(dh)
    return a, b, c, d, e, f, g, h


@triton.jit
def signed(byte, scale, bit: tl.constexpr):
    return tl.where((byte & (1 << bit)) != 0, scale, -scale)


@triton.jit
def sum_signs(total, n, packed, scales, onto: tl.constexpr, size: tl.constexpr):
    """Sum every worker's signs, packed, times its scale into `total`, in order of rank."""
    byte = tl.program_id(0) * size + tl.arange(0, size)
    at = byte[:, None] * 8 + tl.arange(0, 8)[None, :]
    v = tl.zeros([size, 8], tl.float32)
    if onto:
        v = tl.load(total + at, mask=at < n, other=0.0)
    a, b, c, d, e, f, g, h = columns(v)
    for worker in tl.static_range(len(packed)):
        signs = tl.load(packed[worker] + byte, mask=byte * 8 < n, other=0).to(tl.int32)
        scale = tl.load(scales + worker)
        a += signed(signs, scale, 0)
        b += signed(signs, scale, 1)
        c += signed(signs, scale, 2)
        d += signed(signs, scale, 3)
        e += signed(signs, scale, 4)
        f += signed(signs, scale, 5)
        g += signed(signs, scale, 6)
        h += signed(signs, scale, 7)
    tl.store(total + at, joined(a, b, c, d, e, f, g, h), mask=at < n)


@triton.jit
def add_cast(
    total, added, n, inverse, size_, wire, largest, with_added: tl.constexpr, keep: tl.constexpr,
    size: tl.constexpr,
):  # fmt: skip
    """Write (total += added) times `inverse` to `wire`, in its type.

    Write the bits of the largest magnitude of each program's sum to `largest`, int32. With `keep`,
    `total` becomes the sum minus `size_` times `wire`.
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
    """Add `added` to `total`. Write each program's largest magnitude and sum of squares.

    `largest` gets the bits as int32, `squares` float64.
    """
    at = tl.program_id(0) * size + tl.arange(0, size)
    inside = at < n
    v = tl.load(total + at, mask=inside, other=0.0)
    if with_added:
        v += tl.load(added + at, mask=inside, other=0.0)
        tl.store(total + at, v, mask=inside)
    tl.store(largest + tl.program_id(0), tl.max(tl.abs(v).to(tl.int32, bitcast=True), 0))
    wide = v.to(tl.float64)
    tl.store(squares + tl.program_id(0), tl.sum(wide * wide, 0))
