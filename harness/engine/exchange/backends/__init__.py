"""Communication backends of a process group, and the choice between them."""

import torch
import torch.distributed as dist

from harness.config.backends import BETWEEN_GPUS
from harness.engine.exchange.backends.base import Backend as Backend
from harness.engine.exchange.backends.base import ProcessGroup as ProcessGroup
from harness.engine.exchange.backends.gloo import Gloo
from harness.engine.exchange.backends.nccl import Nccl

MESSAGES: Backend = Gloo()  # between two ranks, whatever the device


def backend_of(group: ProcessGroup, device: torch.device) -> Backend:
    """Return the backend that carries tensors of `device` in `group`."""
    by_nccl = (
        device.type == BETWEEN_GPUS.device_type and dist.get_backend(group) == BETWEEN_GPUS.name
    )
    return Nccl() if by_nccl else Gloo()
