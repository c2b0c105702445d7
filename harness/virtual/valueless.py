"""Tensors of torch's meta device, which have a shape and no values: what a replay sends."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_told = ContextVar("told", default=False)  # of each thread: whether who asks for a value is told 0


@contextmanager
def on(buffer: Tensor) -> Iterator[None]:
    """In which a bucket in `buffer` can be reduced, whether it has values or not.

    Who asks for the value of a meta tensor, say to see that it is finite, is told 0.
    """
    before = _told.set(buffer.is_meta)
    try:
        yield
    finally:
        _told.reset(before)


def _value(tensor: Tensor) -> float | int:
    """Stand in for `Tensor.item` on a meta tensor. A mode, asked at every call, costs a third."""
    if not _told.get():
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    return 0.0 if tensor.is_floating_point() else 0


_meta = torch.library.Library("aten", "IMPL")  # as long as this module is there
_meta.impl("_local_scalar_dense", _value, "Meta", allow_override=True)  # by default since 2.15
