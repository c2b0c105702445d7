"""DCT-MP: the largest activations of every sample, and the gradients of just these (Gupta, 2021).

Dynamic communication thresholding, Algorithm 2: the same mask forward and backward, which is the
derivative of keeping what it keeps; no error feedback. Also in evaluation, where the paper sorts as
well. `threshold: laplace` is its Appendix B: one threshold for all rows, where a Laplace
distribution of their mean and variance leaves `density` beyond it, in magnitude (the printed
formula has one side and takes eta for what is kept). How many entries reach it drifts, and what
crossed tells. In evaluation it is then the average of the thresholds of training: the paper says no
more than that the estimate comes from there.
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
    """Forward 4 bytes for each entry that is kept, and the mask; backward 4 bytes for each."""

    keeps_largest = True
    density: float  # of every row that is kept, in (0, 1]: 1 - eta
    threshold: str = "exact"  # exact: of each row, by selection | laplace: of all, by a fit
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
        """Mark the entries of `rows`, [rows, d], that are sent; bool of that shape."""
        if self.threshold == "exact":
            return row_mask(rows, self.density)
        return (rows.abs() >= self._fitted(rows, training)) & (bits(rows) > 0)

    def _fitted(self, rows: Tensor, training: bool) -> float:
        """The threshold of this micro-batch; in evaluation the average, where there is one."""
        if not training and self.average is not None:
            return self.average
        found = self._model.threshold(rows.flatten(), self.density)
        if training:
            past = found if self.average is None else self.average
            self.average = self.memory * past + (1 - self.memory) * found
        return found
