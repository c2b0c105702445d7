"""No compression of activations and gradients: the baseline."""

from dataclasses import dataclass

from torch import Tensor

from compressors.activations.base import Activations, Piece


@dataclass
class Dense(Activations):
    """Activations without compression: 4 rows d bytes in each direction."""

    keeps_largest = True

    def forward(self, rows: Tensor, training: bool) -> tuple[Piece, None]:
        return Piece(rows.flatten()), None

    def received(self, piece: Piece, shape: tuple[int, int], training: bool) -> tuple[Tensor, None]:
        return piece.values.view(shape), None

    def backward(self, grad: Tensor, kept: None) -> Piece:
        return Piece(grad.flatten())

    def returned(self, piece: Piece, kept: None, shape: tuple[int, int]) -> Tensor:
        return piece.values.view(shape)

    def count(self, shape: tuple[int, int]) -> int | None:
        return shape[0] * shape[1]

    def count_back(self, kept: None, shape: tuple[int, int]) -> int | None:
        return shape[0] * shape[1]
