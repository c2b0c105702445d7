"""A Gaussian sketch of activations (Gupta et al., 2021, Appendix C), for comparison only.

Every row x, [d], is sent as x S. S has s = round(density d) columns of independent N(0, 1/s). The
other side uses x S S'. The gradient g is sent whole and becomes g S S' before the cut, which is the
derivative. The paper does not say how a sketch is decoded, or how often S is drawn. We draw it for
every micro-batch, or once with `fresh: false`; training then adapts to it. S is never sent, because
both sides draw it from the seed and the number of the micro-batch. In evaluation the number of
evaluated batches since training counts too, so results do not depend on how often one evaluates.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from compressors.activations.base import Activations, Piece
from compressors.activations.rows import check_density
from compressors.rng import generator

ONCE = (0, 0)


@dataclass
class Seen:
    """Counts of the batches at one side of a cut."""

    trained: int = 0
    evaluated: int = 0  # since the last training batch

    def next(self, training: bool) -> tuple[int, int]:
        """Count one more batch. Return its number: (trained, evaluated since training)."""
        self.trained += training
        self.evaluated = 0 if training else self.evaluated + 1
        return self.trained, self.evaluated


@dataclass
class GaussianSketch(Activations):
    """Activations as products with a random Gaussian matrix S, [d, s], drawn alike on both sides.

    Forward sends 4 rows s bytes, and backward 4 rows d bytes.
    """

    density: float  # s / d, in (0, 1]
    seed: int
    fresh: bool = True  # True draws S for every micro-batch, False once
    before: Seen = field(default_factory=Seen, init=False)
    behind: Seen = field(default_factory=Seen, init=False)

    def __post_init__(self) -> None:
        check_density(self.density)

    def forward(self, rows: Tensor, training: bool) -> tuple[Piece, Tensor]:
        sketch = self._sketch(rows.shape[1], self.before.next(training), rows.device)
        return Piece((rows @ sketch).flatten()), sketch

    def received(self, piece: Piece, shape: tuple[int, int], training: bool) -> tuple[Tensor, None]:
        narrow = piece.values.view(shape[0], self._width(shape[1]))
        sketch = self._sketch(shape[1], self.behind.next(training), narrow.device)
        return narrow @ sketch.T, None

    def backward(self, grad: Tensor, kept: None) -> Piece:
        return Piece(grad.flatten())

    def returned(self, piece: Piece, kept: Tensor, shape: tuple[int, int]) -> Tensor:
        return (piece.values.view(shape) @ kept) @ kept.T

    def count(self, shape: tuple[int, int]) -> int | None:
        return shape[0] * self._width(shape[1])

    def count_back(self, kept: Tensor, shape: tuple[int, int]) -> int | None:
        return shape[0] * shape[1]

    def _width(self, d: int) -> int:
        return max(1, round(self.density * d))

    def _sketch(self, d: int, batch: tuple[int, int], device: torch.device) -> Tensor:
        """Return S, [d, s], for rows of `d` entries, the same at both sides of a cut."""
        s, source = self._width(d), generator(self.seed, *(batch if self.fresh else ONCE))
        return torch.randn(d, s, generator=source).div_(s**0.5).to(device)
