"""Small integers as the bits they need: n codes of `width` bits in ceil(width n / 8) bytes.

The lowest bit of every code comes first, then every second bit, and so on; eight to a byte, the
first in its lowest bit. With width 1 these are the sign bits of the 1-bit methods; with width 8
there is nothing to pack, and codes stay as they are.
"""

import numpy as np
import torch
from torch import Tensor

from compressors import kernels

BYTE = 8  # bits


def packed_bytes(n: int, width: int) -> int:
    return -(-width * n // BYTE)


def pack(codes: Tensor, width: int) -> Tensor:
    """Codes below 2**width, uint8 [n], as uint8 [packed_bytes(n, width)]."""
    if width == BYTE:
        return codes
    planes = torch.stack([codes >> bit & 1 for bit in range(width)]) if width > 1 else codes
    flat = planes.flatten()
    if flat.is_cuda:
        return _pack_on_gpu(flat)
    return torch.from_numpy(np.packbits(flat.numpy(), bitorder="little"))


def unpack(packed: Tensor, width: int, n: int) -> Tensor:
    """The codes, uint8 [n], that `pack` made into `packed`."""
    if width == BYTE:
        return packed
    if packed.is_cuda:
        flat = _unpack_on_gpu(packed)[: width * n]
    else:
        bits = np.unpackbits(packed.numpy(), count=width * n, bitorder="little")
        flat = torch.from_numpy(bits)
    codes, *higher = flat.view(width, n)
    for bit, plane in enumerate(higher, start=1):
        codes.bitwise_or_(plane.bitwise_left_shift_(bit))
    return codes


def pack_signs(x: Tensor) -> Tensor:
    """A bit for every element of `x`, [n]: whether it is >= 0 (so zeros count as positive)."""
    if (native := kernels.of(x)) is not None:
        packed = torch.empty(packed_bytes(x.numel(), 1), dtype=torch.uint8)
        native.signs.pack(x.numpy(), packed.numpy())
        return packed
    return pack((x >= 0).view(torch.uint8), 1)


def add_signs_(total: Tensor, packed: Tensor, scale: Tensor) -> None:
    """Add `scale`, float32 [], times the +-1 of `pack_signs` to `total`, [n].

    A scale that is not finite makes all of `total` NaN or infinite.
    """
    native = kernels.of(total)
    enough = packed.is_contiguous() and packed.numel() >= packed_bytes(total.numel(), 1)
    if native is not None and enough:
        native.signs.add(total.numpy(), packed.numpy(), scale.item())
        return
    total.addcmul_(unpack(packed, 1, total.numel()).to(total.dtype), 2 * scale).sub_(scale)


def _pack_on_gpu(bits: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(bits, (0, -bits.numel() % BYTE)).view(-1, BYTE)
    shifts = torch.arange(BYTE, dtype=torch.uint8, device=bits.device)
    return (padded << shifts).sum(1, dtype=torch.uint8)


def _unpack_on_gpu(packed: Tensor) -> Tensor:
    shifts = torch.arange(BYTE, dtype=torch.uint8, device=packed.device)
    return (packed[:, None] >> shifts & 1).flatten()
