"""Selection and sign packing on a GPU, in kernels that the host never waits for.

What is selected goes into buffers of a fixed capacity, so that neither its number nor its
positions have to reach the host before they are sent. In Triton where that can compile (it needs a
C compiler when it runs), in torch otherwise, with equal results.
"""

import functools
import shutil
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

BYTE = 8  # bits
INDEX_END = 1 << 31  # positions are int32


class Selected(NamedTuple):
    """Entries of a vector, by ascending position; both are filled up with zeros."""

    where: Tensor  # int32 [capacity]
    values: Tensor  # float32 [capacity]
    passed: Tensor  # int64 [], how many passed the threshold; those beyond capacity were left


@functools.cache
def loops() -> ModuleType | None:
    """The Triton kernels; None where Triton is not installed or has no compiler to work with."""
    try:
        from compressors.kernels import gpu_loops
    except ImportError:
        return None
    interprets = gpu_loops.triton.knobs.runtime.interpret
    return gpu_loops if interprets or any(map(shutil.which, ("cc", "gcc", "clang"))) else None


def select_(
    total: Tensor, threshold: Tensor, capacity: int, added: Tensor | None = None
) -> Selected:
    """Take the entries of `total`, [n], of magnitude `threshold`, float32 [], or more out of it.

    With `added`, of total += added. NaN is taken, zeros are not. At most `capacity` leave, those of
    lowest positions; they are zero in `total` afterwards. ValueError for n of 2^31 or more.
    """
    n = total.numel()
    if n >= INDEX_END:
        raise ValueError(f"total must have fewer than 2**31 elements, got {n}; use more buckets")
    index = torch.zeros(capacity, dtype=torch.int32, device=total.device)
    values = torch.zeros(capacity, dtype=total.dtype, device=total.device)
    if (kernels := loops()) is None:
        return _select_in_torch(total, threshold, index, values, added)
    size = kernels.BLOCK
    blocks = -(-n // size)
    counts = torch.empty(blocks, dtype=torch.int32, device=total.device)
    addend = total if added is None else added
    kernels.add_count[(blocks,)](
        total, addend, n, threshold, counts, with_added=added is not None, size=size
    )
    ends = counts.cumsum(0)
    kernels.take_out[(blocks,)](total, n, threshold, ends, index, values, capacity, size=size)
    return Selected(index, values, ends[-1])


def _select_in_torch(
    total: Tensor, threshold: Tensor, index: Tensor, values: Tensor, added: Tensor | None
) -> Selected:
    if added is not None:
        total.add_(added)
    passed = (total.abs() < threshold).logical_not_().logical_and_(total != 0)
    where = torch.nonzero_static(passed, size=index.numel(), fill_value=-1).flatten()
    filled = where >= 0
    where.clamp_(min=0)
    index.copy_(where)
    values.copy_(torch.where(filled, total.index_select(0, where), 0))
    # Where nothing was found the first element is put back as it is, unless it was taken itself.
    first_stays = torch.where(passed[0] & filled[0], 0, total[0])
    total.index_put_((where,), torch.where(filled, 0, first_stays))
    return Selected(index, values, passed.sum())


def pack_signs(x: Tensor) -> Tensor:
    """A bit for every element of `x`, [n]: whether it is >= 0; uint8 [ceil(n / 8)]."""
    if (kernels := loops()) is None:
        return pack_bits((x >= 0).view(torch.uint8))
    packed = torch.empty(-(-x.numel() // BYTE), dtype=torch.uint8, device=x.device)
    size = kernels.BYTES
    kernels.pack_signs[(-(-packed.numel() // size),)](x, x.numel(), packed, size=size)
    return packed


def add_signs_(total: Tensor, packed: Tensor, scale: Tensor) -> None:
    """Add `scale`, float32 [], times the +-1 of `pack_signs` to `total`, [n]."""
    n = total.numel()
    if (kernels := loops()) is None:
        total.add_(torch.where(unpack_bits(packed)[:n].bool(), scale, -scale))
        return
    size = kernels.BLOCK
    kernels.add_signs[(-(-n // size),)](total, packed, scale, n, size=size)


def pack_bits(bits: Tensor) -> Tensor:
    """Zeros and ones, uint8 [n], eight to a byte, the first in its lowest bit."""
    padded = torch.nn.functional.pad(bits, (0, -bits.numel() % BYTE)).view(-1, BYTE)
    shifts = torch.arange(BYTE, dtype=torch.uint8, device=bits.device)
    return (padded << shifts).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor) -> Tensor:
    """The zeros and ones of `pack_bits`, uint8 [8 x bytes]."""
    shifts = torch.arange(BYTE, dtype=torch.uint8, device=packed.device)
    return (packed[:, None] >> shifts & 1).flatten()
