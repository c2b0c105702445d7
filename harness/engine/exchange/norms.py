"""How large a gradient is, what waits beside it, and how much of both a compressor sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import NamedTuple

import torch
from torch import Tensor

from compressors import kernels

CHUNK = 1 << 15  # elements that are float64 at a time: they stay in the cache


class Norms(NamedTuple):
    """Norms of one exchange at one worker, over the whole gradient; nan: not taken."""

    grad_norm: float = nan
    residual_norm: float = nan
    gain: float = nan
    captured: float = nan


@dataclass
class SquaredNorms:
    """Sums of squares, of an exchange's buckets so far."""

    gradient: float = 0.0  # g
    residual: float = 0.0  # e
    compensated: float = 0.0  # g + e
    unsent: float = 0.0

    def add_input(self, gradient: Tensor, residual: Tensor | None) -> None:
        """One bucket's g and e, each [n], before they are added; no e where nothing is kept."""
        own = square(gradient)
        self.gradient += own
        if residual is None:
            self.compensated += own
            return
        self.residual += square(residual)
        pairs = zip(_parts(gradient), _parts(residual), strict=True)
        self.compensated += sum(square(g + e) for g, e in pairs)

    def add_unsent(self, unsent: Tensor | None) -> None:
        """Add the square of what one bucket left unsent, [n]; None: nothing."""
        if unsent is not None:
            self.unsent += square(unsent)

    def norms(self) -> Norms:
        """Norms so far; the sent part counts as orthogonal to the rest, as with top-k."""
        sent = max(0.0, self.compensated - self.unsent)
        return Norms(
            grad_norm=self.gradient**0.5,
            residual_norm=self.residual**0.5,
            gain=_ratio(sent, self.gradient),
            captured=_ratio(sent, self.compensated),
        )


def square(x: Tensor) -> float:
    """|x|^2 of `x`, float32 [n], summed in float64: finite where every element is."""
    if (native := kernels.of(x)) is not None:
        return float(native.signs.squares(x.numpy()))
    return sum(float(torch.linalg.vector_norm(part.double()).square()) for part in _parts(x))


def _parts(x: Tensor) -> Sequence[Tensor]:
    return x.split(CHUNK) if x.is_cpu else (x,)


def _ratio(part: float, whole: float) -> float:
    """Quotient `part / whole`; 1 for 0 / 0, as nothing was left out."""
    if whole == 0:
        return inf if part else 1.0
    return part / whole
