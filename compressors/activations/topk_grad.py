"""Top-k of the gradients of activations (Gupta et al., 2021, Appendix C), for comparison only.

Forward sends everything. Backward sends the largest entries of each row, after adding the unsent
part of the previous micro-batch. That part belongs to other samples, so training fails, with error
feedback or without. Nothing is added if the previous micro-batch had another shape.
"""

from dataclasses import dataclass, field

from torch import Tensor

from compressors.activations.base import Activations, Piece
from compressors.activations.rows import check_density, entries, row_mask, spread


@dataclass
class TopKGrad(Activations):
    """Top-k of gradients. Forward sends 4 rows d bytes, backward 4 per kept entry and the mask."""

    density: float  # kept share of every row of the gradient, in (0, 1]
    error_feedback: bool = True
    error: Tensor | None = field(default=None, init=False, repr=False)  # [rows, d]

    def __post_init__(self) -> None:
        check_density(self.density)

    def forward(self, rows: Tensor, training: bool) -> tuple[Piece, None]:
        return Piece(rows.flatten()), None

    def received(self, piece: Piece, shape: tuple[int, int], training: bool) -> tuple[Tensor, None]:
        return piece.values.view(shape), None

    def backward(self, grad: Tensor, kept: None) -> Piece:
        if self.error is not None and self.error.shape == grad.shape:
            grad = grad + self.error
        mask = row_mask(grad, self.density)
        if self.error_feedback:
            self.error = grad.masked_fill(mask, 0)
        return Piece(entries(grad, mask), mask)

    def returned(self, piece: Piece, kept: None, shape: tuple[int, int]) -> Tensor:
        assert piece.mask is not None
        return spread(piece.values, piece.mask)

    def count(self, shape: tuple[int, int]) -> int | None:
        return shape[0] * shape[1]

    def count_back(self, kept: None, shape: tuple[int, int]) -> int | None:
        return None
