"""Compression at a cut as an operator within one process, the same as a pipeline without sending.

The paper's own small experiments use such an operator. It is part of the model, so it also
compresses in evaluation.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compressors.activations import calls
from compressors.activations.base import Activations, Piece


@dataclass
class Crossed:
    """Counts of the activation entries sent and of all entries. They only grow."""

    kept: int = 0
    entries: int = 0

    def add(self, piece: Piece, rows: Tensor) -> None:
        self.kept += piece.values.numel()
        self.entries += rows.numel()


class Cut:
    """A cut in a model, at which `scheme` compresses activations and their gradients."""

    def __init__(self, scheme: Activations) -> None:
        self.scheme, self.crossed = scheme, Crossed()

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        """Return `x`, [rows, ...], compressed and restored as a pipeline would, in its shape."""
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
