"""The model that a server holds: what may be applied to it, and how."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from harness.parameter_server.flat import flattened


class Piece(NamedTuple):
    """A gradient: values, float32 [k], at `index`, [k]; None: dense, k = n."""

    values: Tensor
    index: Tensor | None  # type: ignore[assignment]


@dataclass
class Weights:
    """`model`, whose parameters lie in one vector `flat`, [n], and its optimizer.

    Whoever changes them holds `lock`; who reads without it may see half a change.
    """

    model: nn.Module
    optimizer_of: Callable[[nn.Module], torch.optim.Optimizer]
    learning_rate: Callable[[int], float]  # by version
    clip_norm: float | None = None
    version: int = 0  # updates
    lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self.flat, self._grad = flattened(self.model)
        self.optimizer = self.optimizer_of(self.model)

    def fault(self, piece: Piece) -> str | None:
        """Why `piece` must not be applied; None: it may."""
        if not bool(piece.values.isfinite().all()):
            return "not_finite"
        index = piece.index
        if index is not None and index.numel():
            inside = 0 <= int(index[0]) and int(index[-1]) < self.flat.numel()
            if not (inside and bool((index.diff() > 0).all())):
                return "index"
        return None

    def apply(self, pieces: Iterable[Piece], share: float = 1.0) -> None:
        """One optimizer step with the sum of `pieces`, in their order, times `share`."""
        self._grad.zero_()
        for values, index in pieces:
            if index is None:
                self._grad.add_(values)
            else:
                self._grad.index_add_(0, index, values)
        if share != 1:
            self._grad.mul_(share)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.version)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        self.version += 1
