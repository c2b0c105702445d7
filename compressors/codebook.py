"""Values in a few bits: uniform steps around the mean, decoded to each step's mean value.

For values x with mean mu and deviation sd, and b bits: q = round((x - mu) / (6 sd / 2^b) + 2^(b -
1)), clamped to 0 .. 2^b - 1. The step is 1 if it would be 0. A book holds the mean of x - mu for
each of the 2^b codes, and mu. Codes are packed 8 / b to a byte, the first in its lowest bits.
"""

import numpy as np
import torch
from torch import Tensor

from compressors import kernels
from compressors.packing import BYTE
from compressors.workspace import workspace

WIDTHS = (1, 2, 4, 8)  # bits of a code
SIGMAS = 6.0  # that the steps span


def quantise(values: Tensor, counts: list[int], bits: int) -> tuple[Tensor, Tensor]:
    """Return codes of `values`, uint8 [ceil(bits n / 8)], and books, float32 [parts, 2^bits + 1].

    Each part, of `counts` elements, has a book of its own. The codes lie in this thread's memory.
    """
    levels, count = 1 << bits, values.numel()
    packed = workspace("codes", -(-bits * count // BYTE), torch.uint8, values.device)
    books = values.new_zeros(len(counts), levels + 1)
    if (native := kernels.of(values)) is not None:
        of = np.array(counts, np.int64)
        native.chunks.quantise(values.numpy(), of, bits, SIGMAS, books.numpy(), packed.numpy())
        return packed, books
    codes = values.new_zeros(packed.numel() * (BYTE // bits), dtype=torch.uint8)
    parts = zip(values.split(counts), codes[:count].split(counts), books, strict=True)
    for part, own, book in parts:
        mean = part.mean(dtype=torch.float64).float()
        centred = part - mean
        wide = centred.double()
        step = SIGMAS / levels * (wide.square().sum().sqrt() / (len(part) - 1.0) ** 0.5)
        step = step.float()
        step = torch.where(step.isfinite() & (step > 0), step, 1)
        own.copy_((centred / step + levels // 2).round_().nan_to_num_(0).clamp_(0, levels - 1))
        which = own.long()
        sums = wide.new_zeros(levels).index_add_(0, which, wide)
        members = wide.new_zeros(levels).index_add_(0, which, torch.ones_like(wide))
        book[:levels], book[levels] = sums / members.clamp_(min=1), mean
    places = bits * torch.arange(BYTE // bits, dtype=torch.uint8, device=values.device)
    packed.copy_((codes.view(-1, BYTE // bits) << places).sum(1, dtype=torch.uint8))
    return packed, books


def decode(packed: Tensor, books: Tensor, counts: list[int], bits: int, out: Tensor) -> Tensor:
    """Write the values of codes and books from `quantise` to `out`, [n], and return it."""
    kernels.require_room("out", out, sum(counts))
    kernels.require_room("packed", packed, -(-bits * sum(counts) // BYTE))
    kernels.require_room("books", books, len(counts) * ((1 << bits) + 1))
    if (native := kernels.of(out)) is not None:
        native.chunks.decode(
            packed.numpy(), np.array(counts, np.int64), bits, books.numpy(), out.numpy()
        )
        return out
    places = bits * torch.arange(BYTE // bits, dtype=torch.uint8, device=out.device)
    codes = (packed[:, None] >> places & (1 << bits) - 1).flatten()[: out.numel()].long()
    for part, which, book in zip(out.split(counts), codes.split(counts), books, strict=True):
        part.copy_((book[:-1] + book[-1])[which])
    return out
