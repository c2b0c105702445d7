"""Scratch memory for one reduction, kept by the thread, because fresh pages cost a pass each."""

from contextvars import ContextVar

import torch
from torch import Tensor

_Tensors = dict[tuple[str, torch.dtype, torch.device], Tensor]

_held: ContextVar[_Tensors | None] = ContextVar("workspace", default=None)  # of each thread


def workspace(role: str, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return [n] uninitialised elements, which this thread keeps until it asks for the role again.

    The largest size asked for stays allocated, per role. Collectives block, so a payload may lie
    here, but a mean may not.
    """
    if (tensors := _held.get()) is None:
        _held.set(tensors := {})
    key = (role, dtype, device)
    found = tensors.get(key)
    if found is None or found.numel() < n:
        found = tensors[key] = torch.empty(n, dtype=dtype, device=device)
    return found[:n]


def held(role: str, x: Tensor) -> Tensor:
    """Return a copy of `x`, [n], in the workspace of `role`."""
    return workspace(role, x.numel(), x.dtype, x.device).copy_(x)
