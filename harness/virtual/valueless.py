"""Tensors of torch's meta device, which have a shape and no values: what a replay sends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class _Here(threading.local):
    """Of each thread: whether who asks for a value is told 0."""

    told = False


_here = _Here()


@contextmanager
def on(buffer: Tensor) -> Iterator[None]:
    """In which a bucket in `buffer` can be reduced, whether it has values or not.

    Who asks for the value of a meta tensor, say to see that it is finite, is told 0.
    """
    before, _here.told = _here.told, buffer.is_meta
    try:
        yield
    finally:
        _here.told = before


def _value(tensor: Tensor) -> float | int:
    """What `Tensor.item` does for a meta tensor. A mode that looks at every call costs a third."""
    if not _here.told:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    return 0.0 if tensor.is_floating_point() else 0


_meta = torch.library.Library("aten", "IMPL")  # as long as this module is there
_meta.impl("_local_scalar_dense", _value, "Meta")
