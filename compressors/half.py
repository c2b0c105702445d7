"""Casts of a vector to 16-bit floats, and their rounding errors."""

import numpy as np
import torch
from torch import Tensor

from compressors import kernels
from compressors.kernels import gpu
from compressors.packing import NOTHING


def add_cast_(total: Tensor, added: Tensor | None, size: int, wire: Tensor, keep: bool) -> float:
    """Write (total += added) / size to `wire`, all [n]. Return the sum's largest magnitude.

    With `keep`, `total` becomes the rounding error, otherwise the sum.
    """
    native = kernels.of(total, added)
    kernels.require_room("wire", wire, total.numel())
    if native is not None:
        other = NOTHING if added is None else added.numpy()
        bits = wire.view(torch.int16).numpy().view(np.uint16)
        is_bfloat = wire.dtype == torch.bfloat16
        largest = native.casts.encode(total.numpy(), other, size, is_bfloat, keep, bits)
        return float(np.int32(largest).view(np.float32))
    if gpu.takes(total):
        return float(gpu.add_cast_(total, added, size, wire, keep))
    if added is not None:
        total.add_(added)
    largest = float(torch.stack(torch.aminmax(total)).abs().max())
    wire.copy_(total * (1 / size))
    if keep:
        total.sub_(wire.float().mul_(size))
    return largest
