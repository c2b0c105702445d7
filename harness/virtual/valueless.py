"""Tensors of torch's meta device, which have a shape and no values: what a replay sends."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Valueless(TorchDispatchMode):
    """Who asks for the value of a meta tensor, say to see that it is finite, is told 0."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 0.0 if args[0].is_floating_point() else 0
        return func(*args, **(kwargs or {}))


def on(buffer: Tensor) -> AbstractContextManager[Any]:
    """In which a bucket in `buffer` can be reduced, whether it has values or not."""
    return Valueless() if buffer.is_meta else nullcontext()
