"""How a mask travels: a bit for every entry, or the position of those that are set.

    bitmap   ceil(n / 8) bytes, then the values: nothing else, as the bits say how many
    index    4 bytes for how many, then their positions of 1, 2 or 4 bytes, by n, and the values
    auto     like index, but whichever of the two is shorter; how many says which

A bitmap is shorter than positions of 2 bytes from a density of 1/16 on, of 4 bytes from 1/32 on.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.activations.base import Piece
from compressors.packing import pack, packed_bytes, unpack

ENCODINGS = ("bitmap", "index", "auto")
COUNT_BYTES, VALUE_BYTES = 4, 4
WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}  # of positions; 2 is read as unsigned


@dataclass(frozen=True)
class Encoding:
    """A piece as one or two messages; the length of the second follows from the first."""

    name: str = "bitmap"  # bitmap | index | auto

    def __post_init__(self) -> None:
        if self.name not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, got {self.name!r}")

    def encode(self, piece: Piece) -> list[Tensor]:
        """The messages, uint8 [bytes] each; a second one without bytes is left out."""
        values = piece.values.contiguous().view(torch.uint8)
        if piece.mask is None:
            return [values]
        flat = piece.mask.reshape(-1)
        bitmap = self._is_bitmap(flat.numel(), piece.values.numel())
        where = pack(flat.view(torch.uint8), 1) if bitmap else _positions(flat)
        if self.name == "bitmap":
            return [where, values] if values.numel() else [where]
        count = torch.tensor([piece.values.numel()], dtype=torch.int32, device=flat.device)
        return [count.view(torch.uint8), torch.cat([where, values])][: 1 + bool(values.numel())]

    def first_bytes(self, n: int) -> int:
        """Length of the first message of a piece with a mask of n entries."""
        return packed_bytes(n, 1) if self.name == "bitmap" else COUNT_BYTES

    def second_bytes(self, first: Tensor, n: int) -> int:
        """Length of the second, by the first."""
        k = self._count(first, n)
        if self.name == "bitmap" or k == 0:
            return VALUE_BYTES * k
        where = packed_bytes(n, 1) if self._is_bitmap(n, k) else width(n) * k
        return where + VALUE_BYTES * k

    def decode(self, first: Tensor, second: Tensor, shape: tuple[int, int]) -> Piece:
        """The piece that `encode` made into these, of `shape` rows."""
        n = shape[0] * shape[1]
        k = self._count(first, n)
        if self.name == "bitmap":
            where, values = first, second
        else:
            where, values = second[: second.numel() - VALUE_BYTES * k], second[-VALUE_BYTES * k :]
        if self._is_bitmap(n, k) and where.numel():
            mask = unpack(where, 1, n).view(torch.bool)
        else:
            mask = torch.zeros(n, dtype=torch.bool, device=first.device)
            mask[_read(where, n)] = True
        return Piece(values.clone().view(torch.float32), mask.view(shape))

    def _is_bitmap(self, n: int, k: int) -> bool:
        if self.name == "auto":
            return packed_bytes(n, 1) <= width(n) * k
        return self.name == "bitmap"

    def _count(self, first: Tensor, n: int) -> int:
        if self.name == "bitmap":
            return int(unpack(first, 1, n).sum(dtype=torch.int64))
        return int(first.view(torch.int32))


def width(n: int) -> int:
    """Bytes of a position among n."""
    return 1 if n <= 1 << 8 else 2 if n <= 1 << 16 else 4


def _positions(flat: Tensor) -> Tensor:
    where = flat.nonzero().flatten()
    return where.to(WIDTHS[width(flat.numel())]).view(torch.uint8)


def _read(where: Tensor, n: int) -> Tensor:
    """Positions, int64 [k], from their bytes."""
    bytes_each = width(n)
    found = where.clone().view(WIDTHS[bytes_each]).long()
    return found & 0xFFFF if bytes_each == 2 else found
