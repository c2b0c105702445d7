"""The discrete cosine transform of every chunk of a gradient: orthonormal DCT-II and its inverse.

A block h x w is transformed in both directions, a run of a vector along it, each by a product with
the matrix of the transform. Coefficients lie where elements did.
"""

from collections.abc import Sequence
from functools import cache
from math import pi

import torch
from torch import Tensor

from compressors.chunks import Block, Chunks
from compressors.workspace import workspace


def transform(x: Tensor, chunks: Chunks, out: Tensor, inverse: bool = False) -> Tensor:
    """Write the coefficients of `x`, [n], to `out`, [n], or with `inverse` the elements of `x`."""
    for block in chunks.blocks:
        _transform(x[block.elements], block, out[block.elements], inverse)
    return out


def add_transform(
    x: Tensor, chunks: Chunks, out: Tensor, before: Sequence[Tensor], share: float
) -> Tensor:
    """Write coefficients of `x`, [n], plus `share` times those `before`, by block, to `out`.

    The addition is part of the last product, which saves a pass. `out` is separate memory.
    """
    for block, own in zip(chunks.blocks, before, strict=True):
        _transform(x[block.elements], block, out[block.elements], False, own, share)
    return out


def _transform(
    x: Tensor,
    block: Block,
    out: Tensor,
    inverse: bool,
    before: Tensor | None = None,
    share: float = 0.0,
) -> None:
    base = out if before is None else before  # of no weight, and not read, without
    across = _basis(block.width, x.device)
    right, lines = across if inverse else across.t(), x.view(-1, block.width)
    flat = (-1, block.width)
    if block.height == 1:
        torch.addmm(base.view(flat), lines, right, beta=share, out=out.view(flat))
        return
    rows = workspace("rows", x.numel(), x.dtype, x.device)
    torch.mm(lines, right, out=rows.view(flat))
    down, shape = _basis(block.height, x.device), (block.down, block.height, block.stride)
    each = (down.t() if inverse else down).expand(block.down, -1, -1)
    torch.baddbmm(base.view(shape), each, rows.view(shape), beta=share, out=out.view(shape))


@cache
def _basis(n: int, device: torch.device) -> Tensor:
    """Return the orthonormal DCT-II, [n, n], with one frequency per row."""
    frequency, place = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n) + 0.5
    rows = (2 / n) ** 0.5 * torch.cos(pi / n * frequency * place)
    rows[0] /= 2**0.5
    return rows.float().to(device)
