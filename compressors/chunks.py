"""Chunks of a gradient: its matrices in blocks, the largest entries of each, and their positions.

A matrix [n, m] is cut into blocks h x w, where h and w are the largest divisors of n and m that do
not exceed a side. A vector is cut into runs of w. A parameter with more dimensions counts as [n,
rest]. Chunks are ordered by rows of blocks. Positions in a chunk count its elements row by row and
stay below 64 x 64 = 4096, so they fit in 12 bits.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Size, Tensor

from compressors import kernels
from compressors.packing import NOTHING
from compressors.topk_select import Entries, bits
from compressors.workspace import workspace

MOST_SIDE = 64  # so that positions have 12 bits
POSITION_BITS = 12
LAYOUTS = 256  # that are kept: buckets of a few models


class Block(NamedTuple):
    """One parameter, cut into `down` rows of `across` chunks of h x w elements."""

    first: int  # element of the bucket
    height: int
    width: int
    stride: int  # elements of a row of the matrix
    across: int
    down: int

    @property
    def size(self) -> int:
        """Elements of a chunk."""
        return self.height * self.width

    @property
    def chunks(self) -> int:
        return self.across * self.down

    @property
    def elements(self) -> slice:
        return slice(self.first, self.first + self.chunks * self.size)

    def rows(self, x: Tensor) -> Tensor:
        """Return a copy of the parameter's chunks of `x`, [n], as [chunks, size]."""
        four = x[self.elements].view(self.down, self.height, self.across, self.width)
        return four.transpose(1, 2).reshape(self.chunks, self.size)


class Chunks(NamedTuple):
    """The chunks of a bucket, and how many entries each may send."""

    blocks: tuple[Block, ...]
    k: int  # of a chunk; all of one that has no more

    @property
    def counts(self) -> list[int]:
        """Number of entries sent of each parameter."""
        return [block.chunks * min(self.k, block.size) for block in self.blocks]

    @property
    def entries(self) -> int:
        return sum(self.counts)


def check_side(side: int) -> None:
    """Raise ValueError unless positions in a chunk of `side` x `side` fit in 12 bits."""
    whole = isinstance(side, int) and not isinstance(side, bool)
    if not (whole and 1 <= side <= MOST_SIDE):
        raise ValueError(f"chunk must be a whole number in [1, {MOST_SIDE}], got {side!r}")


def chunks_of(shapes: Sequence[Size], side: int, k: int) -> Chunks:
    """Return the chunks of parameters of these `shapes`. Each sends `k` entries, or all it has."""
    return Chunks(_blocks(tuple(shapes), side), k)


@lru_cache(LAYOUTS)
def _blocks(shapes: tuple[Size, ...], side: int) -> tuple[Block, ...]:
    found, first = [], 0
    for shape in shapes:
        n = prod(shape)
        if n == 0:
            continue
        if len(shape) < 2:
            width = _divisor(n, side)
            found.append(Block(first, 1, width, width, 1, n // width))
        else:
            rows, columns = shape[0], n // shape[0]
            height, width = _divisor(rows, side), _divisor(columns, side)
            across, down = columns // width, rows // height
            found.append(Block(first, height, width, columns, across, down))
        first += n
    return tuple(found)


@cache
def _divisor(n: int, most: int) -> int:
    """Return the largest divisor of n that is not above `most`."""
    return next(each for each in range(min(n, most), 0, -1) if n % each == 0)


@lru_cache(LAYOUTS)
def _table(blocks: tuple[Block, ...]) -> np.ndarray:
    return np.array(blocks, np.int64).reshape(len(blocks), len(Block._fields))


def add_find_(total: Tensor, added: Tensor | None, clear: bool, chunks: Chunks) -> Entries:
    """Add `added` to `total`, [n] both, and return the largest entries of every chunk.

    `clear` zeroes `added`. Among equal magnitudes the lowest positions win, and NaN is the largest.
    `index`, int32, has positions in the chunk, ascending. The result lies in memory that this
    thread reuses in its next call.
    """
    where = workspace("places in chunks", chunks.entries, torch.int32, total.device)
    values = workspace("values of chunks", chunks.entries, torch.float32, total.device)
    native = kernels.of(total, added)
    kernels.require_room(
        "total", total, max((block.elements.stop for block in chunks.blocks), default=0)
    )
    if native is not None:
        other, table = NOTHING if added is None else added.numpy(), _table(chunks.blocks)
        native.chunks.add_find(
            total.numpy(), other, clear, table, chunks.k, native.compress,
            where.numpy(), values.numpy(),
        )  # fmt: skip
        return Entries(where, values)
    if added is not None:
        total.add_(added)
        if clear:
            added.zero_()
    parts = zip(chunks.blocks, where.split(chunks.counts), values.split(chunks.counts), strict=True)
    for block, places, kept in parts:
        rows = block.rows(total)
        best = _largest(rows, min(chunks.k, block.size))
        places.copy_(best.flatten())
        kept.copy_(rows.gather(1, best).flatten())
    return Entries(where, values)


def _largest(rows: Tensor, k: int) -> Tensor:
    """Return positions of the k largest magnitudes per row, ascending; the first of equal ones."""
    last = rows.shape[1] - 1
    ranked = bits(rows).long() * (last + 1) + torch.arange(last, -1, -1, device=rows.device)
    return (last - ranked.topk(k, 1).values.remainder_(last + 1)).sort(1).values


def positions(chunks: Chunks, where: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the places in the bucket, int32 [entries], of entries at `where` in their chunks.

    The result is written to `out`, or to this thread's memory. Raises IndexError for a position
    outside its chunk.
    """
    index = out
    if index is None:
        index = workspace("positions in bucket", where.numel(), torch.int32, where.device)
    native = kernels.compiled() if where.is_cpu else None
    if native is not None:
        inside = native.chunks.positions(
            _table(chunks.blocks), chunks.k, where.numpy(), index.numpy()
        )
    else:
        inside = True
        pairs = zip(
            chunks.blocks, where.split(chunks.counts), index.split(chunks.counts), strict=True
        )
        for block, places, into in pairs:
            inside = inside and not bool(((places < 0) | (places >= block.size)).any())
            number = torch.arange(block.chunks, device=where.device, dtype=torch.int32)
            down, across = number // block.across, number % block.across
            corner = block.first + down * block.height * block.stride + across * block.width
            within = places // block.width * block.stride + places % block.width
            into.copy_((corner[:, None] + within.view(block.chunks, -1)).flatten())
    if not inside:
        raise IndexError("a position is outside of its chunk")
    return index


def places_of_all(chunks: Chunks, packed: Sequence[Tensor]) -> list[Tensor]:
    """Return `positions` for every worker's packed positions, in separate memory of this thread."""
    count = chunks.entries
    room = workspace("positions of all", len(packed) * count, torch.int32, packed[0].device)
    return [
        positions(chunks, unpack_positions(theirs, count), room[at * count : (at + 1) * count])
        for at, theirs in enumerate(packed)
    ]


def packed_positions_bytes(count: int) -> int:
    """Return the bytes of `count` packed positions: two take three bytes."""
    return -(-POSITION_BITS * count // 8)


def pack_positions(where: Tensor) -> Tensor:
    """Pack positions in chunks, int32 [k], to 12 bits each: uint8 [packed_positions_bytes(k)].

    Two positions take three bytes: the lower 8 bits of the first, then its upper 4 with the lower 4
    of the second, then the upper 8 of the second. The result lies in this thread's memory.
    """
    nbytes = packed_positions_bytes(where.numel())
    packed = workspace("packed positions", nbytes, torch.uint8, where.device)
    if where.is_cpu and (native := kernels.compiled()) is not None:
        native.chunks.pack(where.numpy(), packed.numpy())
        return packed
    one, two = where[::2], where[1::2]
    packed[::3] = (one & 255).byte()
    middle = one >> 8
    middle[: two.numel()] |= (two & 15) << 4
    packed[1::3] = middle.byte()
    packed[2::3] = (two >> 4).byte()
    return packed


def unpack_positions(packed: Tensor, count: int) -> Tensor:
    """Return the positions, int32 [count], that were packed, in this thread's memory."""
    kernels.require_room("packed positions", packed, packed_positions_bytes(count))
    where = workspace("unpacked positions", count, torch.int32, packed.device)
    if packed.is_cpu and (native := kernels.compiled()) is not None:
        native.chunks.unpack(packed.numpy(), where.numpy())
        return where
    low, middle, high = (packed[first::3].int() for first in range(3))
    where[::2] = low | (middle & 15) << 8
    where[1::2] = (middle >> 4)[: high.numel()] | high << 4
    return where
