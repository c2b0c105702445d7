"""Top-k of the gradients of activations (Gupta et al., 2021, Appendix C): made to be compared with.

Forward everything crosses. Backward the largest of each row do, after what was left out of the
last micro-batch has been added: its rows are other samples, which is why this does not work, with
error feedback or without. Where a micro-batch has other sizes than the last, nothing is added.
"""

from dataclasses import dataclass, field

from torch import Tensor

from compressors.activations.base import Activations, Piece
from compressors.activations.rows import check_density, entries, row_mask, spread


@dataclass
class TopKGrad(Activations):
    """Forward 4 rows d bytes; backward 4 for each entry that is kept, and the mask."""

    density: float  # of every row of the gradient that is kept, in (0, 1]
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
