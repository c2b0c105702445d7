"""A Gaussian sketch of activations (Gupta et al., 2021, Appendix C): made to be compared with.

Every row x, [d], is sent as x S, S of s = round(density d) columns of independent N(0, 1/s), drawn
once for a cut; behind it, it is x S S'. The gradient g crosses whole, and becomes g S S' before the
cut, the derivative of that. The paper does not say how a sketch is decoded.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from compressors.activations.base import Activations, Piece
from compressors.activations.rows import check_density


@dataclass
class GaussianSketch(Activations):
    """4 rows s bytes forward, 4 rows d backward."""

    density: float  # s / d, in (0, 1]
    seed: int
    sketches: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)  # [d, s]

    def __post_init__(self) -> None:
        check_density(self.density)

    def forward(self, rows: Tensor, training: bool) -> tuple[Piece, None]:
        return Piece((rows @ self._sketch(rows)).flatten()), None

    def received(self, piece: Piece, shape: tuple[int, int]) -> tuple[Tensor, None]:
        narrow = piece.values.view(shape[0], self._width(shape[1]))
        return narrow @ self._sketch(narrow, shape[1]).T, None

    def backward(self, grad: Tensor, kept: None) -> Piece:
        return Piece(grad.flatten())

    def returned(self, piece: Piece, kept: None, shape: tuple[int, int]) -> Tensor:
        grad = piece.values.view(shape)
        sketch = self._sketch(grad)
        return (grad @ sketch) @ sketch.T

    def count(self, shape: tuple[int, int]) -> int | None:
        return shape[0] * self._width(shape[1])

    def count_back(self, kept: None, shape: tuple[int, int]) -> int | None:
        return shape[0] * shape[1]

    def _width(self, d: int) -> int:
        return max(1, round(self.density * d))

    def _sketch(self, like: Tensor, d: int | None = None) -> Tensor:
        """S for rows of `d`, or of `like`'s, entries; the same at either side of a cut."""
        d = d or like.shape[1]
        if d not in self.sketches:
            s, source = self._width(d), torch.Generator().manual_seed(self.seed)
            self.sketches[d] = torch.randn(d, s, generator=source).div_(s**0.5).to(like.device)
        return self.sketches[d]
