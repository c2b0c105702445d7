"""DCT-MP: send the largest activations of every sample, and their gradients (Gupta et al., 2021).

This is Algorithm 2 of the paper (dynamic communication thresholding). Forward and backward use the
same mask, which gives the exact derivative. There is no error feedback. As in the paper, it also
compresses in evaluation.

`threshold: laplace` is the paper's Appendix B, with one threshold for all rows. It is the magnitude
that a share `density` of a Laplace distribution exceeds, given the mean and variance of all
entries. (The printed formula is one-sided and takes eta for the kept share.) The number of sent
entries drifts, and the traffic records show it. Evaluation uses the average threshold of training.
The paper says only that the estimate comes from there.
"""

from dataclasses import dataclass, field

from torch import Tensor

from compressors.activations.base import Activations, Piece
from compressors.activations.rows import check_density, entries, row_mask, spread
from compressors.threshold_topk import ThresholdTopK
from compressors.topk_select import bits

THRESHOLDS = ("exact", "laplace")


@dataclass
class DCTMP(Activations):
    """Compressor of activations that sends the largest of each row, and a mask of their positions.

    Forward sends 4 bytes per kept entry and the mask. Backward sends 4 bytes for each of these.
    """

    keeps_largest = True
    density: float  # kept share of every row, in (0, 1]: 1 - eta
    threshold: str = "exact"  # exact: selected in each row | laplace: fitted to all rows
    memory: float = 0.99  # weight of the past in the average threshold of evaluation, laplace only
    average: float | None = field(default=None, init=False)  # threshold; None before training

    def __post_init__(self) -> None:
        check_density(self.density)
        if self.threshold not in THRESHOLDS:
            raise ValueError(f"threshold must be {' or '.join(THRESHOLDS)}, got {self.threshold!r}")
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory must be in [0, 1), got {self.memory}")
        self._model = ThresholdTopK("laplace")

    def forward(self, rows: Tensor, training: bool) -> tuple[Piece, Tensor]:
        mask = self.mask(rows, training)
        return Piece(entries(rows, mask), mask), mask

    def received(
        self, piece: Piece, shape: tuple[int, int], training: bool
    ) -> tuple[Tensor, Tensor]:
        assert piece.mask is not None
        return spread(piece.values, piece.mask), piece.mask

    def backward(self, grad: Tensor, kept: Tensor) -> Piece:
        return Piece(entries(grad, kept))

    def returned(self, piece: Piece, kept: Tensor, shape: tuple[int, int]) -> Tensor:
        return spread(piece.values, kept)

    def count(self, shape: tuple[int, int]) -> int | None:
        return None

    def count_back(self, kept: Tensor, shape: tuple[int, int]) -> int | None:
        return int(kept.count_nonzero())

    def mask(self, rows: Tensor, training: bool) -> Tensor:
        """Return the bool mask of the entries of `rows`, [rows, d], to send."""
        if self.threshold == "exact":
            return row_mask(rows, self.density)
        return (rows.abs() >= self._fitted(rows, training)) & (bits(rows) > 0)

    def _fitted(self, rows: Tensor, training: bool) -> float:
        """Return the threshold of this micro-batch, or in evaluation the average if any."""
        if not training and self.average is not None:
            return self.average
        found = self._model.threshold(rows.flatten(), self.density)
        if training:
            past = found if self.average is None else self.average
            self.average = self.memory * past + (1 - self.memory) * found
        return found
