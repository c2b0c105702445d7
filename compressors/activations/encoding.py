"""How a sparse piece travels: one bit for each entry of the mask, then the selected values."""

import torch
from torch import Tensor

from compressors.activations.base import Piece
from compressors.packing import pack, unpack

VALUE_BYTES = 4


def encode(piece: Piece) -> list[Tensor]:
    """Return the messages, uint8 [bytes] each: the mask if there is one, and the values if any."""
    values = piece.values.contiguous().view(torch.uint8)
    if piece.mask is None:
        return [values]
    bits = pack(piece.mask.reshape(-1).view(torch.uint8), 1)
    return [bits, values] if values.numel() else [bits]


def values_bytes(bits: Tensor, n: int) -> int:
    """Return the length of the second message in bytes, by the mask of n entries in the first."""
    return VALUE_BYTES * int(unpack(bits, 1, n).sum(dtype=torch.int64))


def decode(bits: Tensor, values: Tensor, shape: tuple[int, int]) -> Piece:
    """Return the piece that `encode` made into these messages; its mask has this `shape`."""
    mask = unpack(bits, 1, shape[0] * shape[1]).view(torch.bool)
    return Piece(values.clone().view(torch.float32), mask.view(shape))
