"""The compression of a cut as an operator of one process: what a pipeline does, without sending.

The paper's own small experiments are this. It is part of the model, so it is at work in evaluation
too.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compressors.activations import calls
from compressors.activations.base import Activations, Piece


@dataclass
class Crossed:
    """Entries of activations that went forward, of how many; only grows."""

    kept: int = 0
    entries: int = 0

    def add(self, piece: Piece, rows: Tensor) -> None:
        self.kept += piece.values.numel()
        self.entries += rows.numel()


class Cut:
    """`scheme` at a place in a model, between what is called before and what is called after."""

    def __init__(self, scheme: Activations) -> None:
        self.scheme, self.crossed = scheme, Crossed()

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        """Compress and restore `x`, [rows, ...], as a pipeline's cut would; same shape."""
        return _Crossing.apply(x, self, training)  # type: ignore[no-untyped-call]


class _Crossing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: Cut, training: bool) -> Tensor:
        rows = x.flatten(1)
        shape = (rows.shape[0], rows.shape[1])
        piece, ctx.before = calls.forward(cut.scheme, rows, training)
        if training:
            cut.crossed.add(piece, rows)
        behind, ctx.after = calls.received(cut.scheme, piece, shape, training)
        ctx.scheme = cut.scheme
        return behind.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        rows = grads[0].flatten(1)
        piece = calls.backward(ctx.scheme, rows, ctx.after)
        shape = (rows.shape[0], rows.shape[1])
        grad = calls.returned(ctx.scheme, piece, ctx.before, shape)
        return grad.view(grads[0].shape), None, None
