"""Memory for what lives within one reduction, kept by the thread: fresh pages cost a pass each."""

from contextvars import ContextVar

import torch
from torch import Tensor

_Tensors = dict[tuple[str, torch.dtype, torch.device], Tensor]

_held: ContextVar[_Tensors | None] = ContextVar("workspace", default=None)  # of each thread


def workspace(role: str, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[n] of any content, this thread's own until it asks for the same role again.

    Of each role the largest that was asked for stays allocated. Collectives are blocking, so that a
    payload may lie here; a mean may not.
    """
    if (tensors := _held.get()) is None:
        _held.set(tensors := {})
    key = (role, dtype, device)
    found = tensors.get(key)
    if found is None or found.numel() < n:
        found = tensors[key] = torch.empty(n, dtype=dtype, device=device)
    return found[:n]


def held(role: str, x: Tensor) -> Tensor:
    """A copy of `x`, [n], in the workspace of `role`."""
    return workspace(role, x.numel(), x.dtype, x.device).copy_(x)
