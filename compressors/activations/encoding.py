"""Encoding of a sparse piece: one bit per entry for the mask, then the selected values."""

import torch
from torch import Tensor

from compressors.activations.base import Piece
from compressors.packing import pack, unpack

VALUE_BYTES = 4


def encode(piece: Piece) -> list[Tensor]:
    """Return the messages, each uint8 [bytes]: the mask if there is one, then the values if any."""
    values = piece.values.contiguous().view(torch.uint8)
    if piece.mask is None:
        return [values]
    bits = pack(piece.mask.reshape(-1).view(torch.uint8), 1)
    return [bits, values] if values.numel() else [bits]


def values_bytes(bits: Tensor, n: int) -> int:
    """Return the bytes of the message of values, given the packed mask `bits` of n entries."""
    return VALUE_BYTES * int(unpack(bits, 1, n).sum(dtype=torch.int64))


def decode(bits: Tensor, values: Tensor, shape: tuple[int, int]) -> Piece:
    """Return the piece that `encode` made into these messages. Its mask has this `shape`."""
    mask = unpack(bits, 1, shape[0] * shape[1]).view(torch.bool)
    return Piece(values.clone().view(torch.float32), mask.view(shape))
