"""The calls of a compression of activations, each with a check of what it returned.

A model with its cuts in one process and a pipeline of processes use the same calls.
"""

from typing import Any

import torch
from torch import Tensor

from compressors.activations.base import Activations, Piece
from compressors.checks import check_tensor, refuse

Shape = tuple[int, int]  # rows, entries of each


def forward(scheme: Activations, rows: Tensor, training: bool) -> tuple[Piece, Any]:
    """Return `scheme.forward` of `rows`, [rows, d]; BadPart unless a piece and what it keeps."""
    piece, kept = _pair(scheme, "forward()", scheme.forward(rows, training))
    _check_piece(scheme, "forward()[0]", piece, rows)
    check_count(scheme, "count()", scheme.count((rows.shape[0], rows.shape[1])), piece)
    return piece, kept


def received(scheme: Activations, piece: Piece, shape: Shape, training: bool) -> tuple[Tensor, Any]:
    """Return `scheme.received` of `piece`; BadPart unless rows of `shape` and what it keeps."""
    rows, kept = _pair(scheme, "received()", scheme.received(piece, shape, training))
    check_tensor(scheme, "received()[0]", rows, shape, piece.values.device)
    return rows, kept


def backward(scheme: Activations, grad: Tensor, kept: Any) -> Piece:
    """Return `scheme.backward` of `grad`, [rows, d]; BadPart unless a piece."""
    piece = scheme.backward(grad, kept)
    _check_piece(scheme, "backward()", piece, grad)
    return piece


def returned(scheme: Activations, piece: Piece, kept: Any, shape: Shape) -> Tensor:
    """Return `scheme.returned` of `piece`; BadPart unless a gradient of `shape`."""
    grad = scheme.returned(piece, kept, shape)
    check_tensor(scheme, "returned()", grad, shape, piece.values.device)
    return grad


def check_count(scheme: Activations, what: str, count: Any, piece: Piece) -> None:
    """Raise BadPart unless `count` is right: torch ends a process that gets another size."""
    wanted = None if piece.mask is not None else len(piece.values)
    if count != wanted:
        why = "values without a mask" if piece.mask is None else "a mask, which tells"
        refuse(scheme, what, f"{wanted} beside a piece of {why}", count)


def _pair(scheme: Activations, what: str, pair: Any) -> tuple[Any, Any]:
    if not (isinstance(pair, tuple) and len(pair) == 2):
        refuse(scheme, what, "a tuple of two, of which the second is kept", pair)
    return pair


def _check_piece(scheme: Activations, what: str, piece: Any, rows: Tensor) -> None:
    """Raise BadPart unless `piece` is one of `rows`, with a value for each bit of its mask."""
    if not isinstance(piece, Piece):
        refuse(scheme, what, "a compressors.activations.base.Piece", piece)
    check_tensor(scheme, f"{what}.values", piece.values, (None,), rows.device)
    if piece.mask is None:
        return
    check_tensor(scheme, f"{what}.mask", piece.mask, rows.shape, rows.device, torch.bool)
    if not rows.is_meta and (count := int(piece.mask.count_nonzero())) != len(piece.values):
        refuse(scheme, f"{what}.values", f"one for each of {count} set in the mask", piece.values)
