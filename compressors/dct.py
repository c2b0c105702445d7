"""The discrete cosine transform of every chunk of a gradient, orthonormal: DCT-II and its inverse.

Of a block h x w in both directions, of a run of a vector along it, each by a product with the
matrix of the transform. Coefficients lie where elements did.
"""

from functools import cache
from math import pi

import torch
from torch import Tensor

from compressors.chunks import Block, Chunks
from compressors.workspace import workspace


def transform(x: Tensor, chunks: Chunks, out: Tensor, inverse: bool = False) -> Tensor:
    """Coefficients of `x`, [n], or what has these coefficients, into `out`, [n], apart from it."""
    for block in chunks.blocks:
        one, other = x[block.elements], out[block.elements]
        _transform(one, block, other, inverse)
    return out


def _transform(x: Tensor, block: Block, out: Tensor, inverse: bool) -> None:
    across = _basis(block.width, x.device)
    rows = out if block.height == 1 else workspace("rows", x.numel(), x.dtype, x.device)
    lines = x.view(-1, block.width)
    torch.mm(lines, across if inverse else across.t(), out=rows.view(-1, block.width))
    if block.height > 1:
        down = _basis(block.height, x.device)
        shape = block.down, block.height, block.stride
        each = (down.t() if inverse else down).expand(block.down, -1, -1)
        torch.bmm(each, rows.view(shape), out=out.view(shape))


@cache
def _basis(n: int, device: torch.device) -> Tensor:
    """The orthonormal DCT-II, [n, n]: rows are frequencies."""
    frequency, place = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n) + 0.5
    rows = (2 / n) ** 0.5 * torch.cos(pi / n * frequency * place)
    rows[0] /= 2**0.5
    return rows.float().to(device)
