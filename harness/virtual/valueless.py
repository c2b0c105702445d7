"""Tensors of torch's meta device, which have shapes without values: the payload of replays."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_told = ContextVar("told", default=False)  # of each thread: whether who asks for a value is told 0


@contextmanager
def on(buffer: Tensor) -> Iterator[None]:
    """Context manager under which a bucket in `buffer` can be reduced, even on the meta device.

    There, reading the value of a meta tensor, such as a check that it is finite, gives 0.
    """
    before = _told.set(buffer.is_meta)
    try:
        yield
    finally:
        _told.reset(before)


def _value(tensor: Tensor) -> float | int:
    """Return 0 in place of `Tensor.item` on a meta tensor, inside of `on`.

    Raise RuntimeError elsewhere. A torch mode, called at every operation, would cost a third more.
    """
    if not _told.get():
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    return 0.0 if tensor.is_floating_point() else 0


_meta = torch.library.Library("aten", "IMPL")  # as long as this module is there
_meta.impl("_local_scalar_dense", _value, "Meta", allow_override=True)  # by default since 2.15
