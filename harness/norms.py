"""How large a gradient is, what waits beside it, and how much of both a compressor sent."""

from dataclasses import dataclass
from math import inf, nan
from typing import NamedTuple

import torch
from torch import Tensor

from compressors import kernels

CHUNK = 1 << 15  # elements that are float64 at a time: they stay in the cache


class Norms(NamedTuple):
    """Of one exchange at one worker, over the whole gradient, as in Observation; nan: not taken."""

    grad_norm: float = nan
    residual_norm: float = nan
    gain: float = nan
    captured: float = nan


@dataclass
class Squares:
    """Sums of squares of an exchange's buckets so far."""

    gradient: float = 0.0  # g
    residual: float = 0.0  # e
    compensated: float = 0.0  # g + e
    unsent: float = 0.0

    def norms(self) -> Norms:
        """What was sent is taken as orthogonal to the rest, as the entries are that top-k picks."""
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
    parts = x.split(CHUNK) if x.is_cpu else (x,)
    return sum(float(torch.linalg.vector_norm(part.double()).square()) for part in parts)


def _ratio(part: float, whole: float) -> float:
    """Of nothing, all was sent."""
    if whole == 0:
        return inf if part else 1.0
    return part / whole
