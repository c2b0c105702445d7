"""Checked calls of the methods of an activation compression scheme.

Both a cut model in one process and a pipeline of processes use them.
"""

from typing import Any

import torch
from torch import Tensor

from compressors.activations.base import Activations, Piece
from compressors.checks import check_tensor, refuse

Shape = tuple[int, int]  # rows, entries of each


def forward(scheme: Activations, rows: Tensor, training: bool) -> tuple[Piece, Any]:
    """Return `scheme.forward(...)` of `rows` [rows, d]. Raise BadPart if it is malformed."""
    piece, kept = _pair(scheme, "forward()", scheme.forward(rows, training))
    _check_piece(scheme, "forward()[0]", piece, rows)
    check_count(scheme, "count()", scheme.count((rows.shape[0], rows.shape[1])), piece)
    return piece, kept


def received(scheme: Activations, piece: Piece, shape: Shape, training: bool) -> tuple[Tensor, Any]:
    """Return `scheme.received(...)`: rows of `shape`, kept value. Raise BadPart if malformed."""
    rows, kept = _pair(scheme, "received()", scheme.received(piece, shape, training))
    check_tensor(scheme, "received()[0]", rows, shape, piece.values.device)
    return rows, kept


def backward(scheme: Activations, grad: Tensor, kept: Any) -> Piece:
    """Return `scheme.backward(...)`, a piece of `grad` [rows, d]. Raise BadPart if malformed."""
    piece = scheme.backward(grad, kept)
    _check_piece(scheme, "backward()", piece, grad)
    return piece


def returned(scheme: Activations, piece: Piece, kept: Any, shape: Shape) -> Tensor:
    """Return `scheme.returned(...)`, a gradient of `shape`. Raise BadPart if malformed."""
    grad = scheme.returned(piece, kept, shape)
    check_tensor(scheme, "returned()", grad, shape, piece.values.device)
    return grad


def check_count(scheme: Activations, what: str, count: Any, piece: Piece) -> None:
    """Raise BadPart unless `count` fits `piece`: torch aborts if it receives another size."""
    wanted = None if piece.mask is not None else len(piece.values)
    if count != wanted:
        why = "values without a mask" if piece.mask is None else "a mask, which tells"
        refuse(scheme, what, f"{wanted} beside a piece of {why}", count)


def _pair(scheme: Activations, what: str, pair: Any) -> tuple[Any, Any]:
    if not (isinstance(pair, tuple) and len(pair) == 2):
        refuse(scheme, what, "a tuple of two, of which the second is kept", pair)
    return pair


def _check_piece(scheme: Activations, what: str, piece: Any, rows: Tensor) -> None:
    """Raise BadPart unless `piece` fits `rows`, with one value for each set bit of its mask."""
    if not isinstance(piece, Piece):
        refuse(scheme, what, "a compressors.activations.base.Piece", piece)
    check_tensor(scheme, f"{what}.values", piece.values, (None,), rows.device)
    if piece.mask is None:
        return
    check_tensor(scheme, f"{what}.mask", piece.mask, rows.shape, rows.device, torch.bool)
    if not rows.is_meta and (count := int(piece.mask.count_nonzero())) != len(piece.values):
        refuse(scheme, f"{what}.values", f"one for each of {count} set in the mask", piece.values)
