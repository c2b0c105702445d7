"""What carries the collectives of a process group."""

import torch
import torch.distributed as dist

from harness.engine.exchange.backends.base import Backend as Backend
from harness.engine.exchange.backends.base import ProcessGroup as ProcessGroup
from harness.engine.exchange.backends.gloo import Gloo
from harness.engine.exchange.backends.nccl import Nccl


def backend_of(group: ProcessGroup, device: torch.device) -> Backend:
    """Return the backend that carries tensors of `device` in `group`."""
    by_nccl = device.type == "cuda" and dist.get_backend(group) == "nccl"
    return Nccl() if by_nccl else Gloo()
