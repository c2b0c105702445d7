"""Loops on a GPU, in Triton; `compressors.kernels.gpu` decides whether they are used."""

import triton
import triton.language as tl

BLOCK = 2048  # elements a program of the selection handles
BYTES = 256  # packed bytes a program of the signs handles


@triton.jit
def passes(v, threshold):
    """1 if v is not 0 and |v| >= `threshold` or NaN, else 0; int32, so that scans can add it up."""
    return ((tl.abs(v) < threshold) == 0).to(tl.int32) * (v != 0).to(tl.int32)


@triton.jit
def add_count(total, added, n, threshold, counts, with_added: tl.constexpr, size: tl.constexpr):
    """Add `added` to `total`; how many of every `size` elements pass."""
    block = tl.program_id(0)
    at = block.to(tl.int64) * size + tl.arange(0, size)
    inside = at < n
    v = tl.load(total + at, mask=inside, other=0.0)
    if with_added:
        v += tl.load(added + at, mask=inside, other=0.0)
        tl.store(total + at, v, mask=inside)
    tl.store(counts + block, tl.sum(passes(v, tl.load(threshold)), 0))


@triton.jit
def take_out(total, n, threshold, ends, index, values, capacity, size: tl.constexpr):
    """Move what passes to `index` and `values`, ascending; what is beyond `capacity` stays.

    `ends` are the running sums of the counts, this block's included.
    """
    block = tl.program_id(0)
    at = block.to(tl.int64) * size + tl.arange(0, size)
    inside = at < n
    v = tl.load(total + at, mask=inside, other=0.0)
    hit = passes(v, tl.load(threshold))
    slot = tl.load(ends + block) - tl.sum(hit, 0) + tl.cumsum(hit, 0) - hit
    kept = (hit != 0) & (slot < capacity)
    tl.store(index + slot, at.to(tl.int32), mask=kept)
    tl.store(values + slot, v, mask=kept)
    tl.store(total + at, tl.zeros_like(v), mask=kept)


@triton.jit
def pack_signs(x, n, packed, size: tl.constexpr):
    """The bits of x >= 0, eight to a byte, the first element in the lowest."""
    byte = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    bit = tl.arange(0, 8)
    at = byte[:, None] * 8 + bit[None, :]
    positive = (tl.load(x + at, mask=at < n, other=-1.0) >= 0).to(tl.int32)
    tl.store(packed + byte, tl.sum(positive << bit[None, :], 1).to(tl.uint8), mask=byte * 8 < n)


@triton.jit
def add_signs(total, packed, scale, n, size: tl.constexpr):
    """Add `scale` to `total` where the bit is set, -scale elsewhere."""
    at = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    inside = at < n
    byte = tl.load(packed + at // 8, mask=inside, other=0).to(tl.int32)
    sign = 2 * ((byte >> (at % 8).to(tl.int32)) & 1) - 1
    v = tl.load(total + at, mask=inside, other=0.0)
    tl.store(total + at, v + sign.to(tl.float32) * tl.load(scale), mask=inside)
