"""Memory for what lives within one reduction, kept by the thread: fresh pages cost a pass each."""

import threading

import torch
from torch import Tensor


class _Held(threading.local):
    def __init__(self) -> None:
        self.tensors: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}


_held = _Held()


def workspace(role: str, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[n] of any content, this thread's own until it asks for the same role again.

    Of each role the largest that was asked for stays allocated. Collectives are blocking, so that a
    payload may lie here; a mean may not.
    """
    key = (role, dtype, device)
    found = _held.tensors.get(key)
    if found is None or found.numel() < n:
        found = _held.tensors[key] = torch.empty(n, dtype=dtype, device=device)
    return found[:n]


def held(role: str, x: Tensor) -> Tensor:
    """A copy of `x`, [n], in the workspace of `role`."""
    return workspace(role, x.numel(), x.dtype, x.device).copy_(x)
