"""Collectives between GPUs."""

import torch
import torch.distributed as dist
from torch import Tensor

from harness.config.backends import BETWEEN_GPUS
from harness.engine.exchange.backends.base import Backend, ProcessGroup


class Nccl(Backend):
    """NCCL's collectives. NCCL has no tagged sends, so pieces of different sizes are padded."""

    device_type = BETWEEN_GPUS.device_type

    def all_gather(self, group: ProcessGroup, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Return every rank's piece, with one all-gather padded to the longest size."""
        longest = max(sizes)
        padded = torch.nn.functional.pad(mine, (0, longest - mine.numel()))
        gathered = padded.new_empty(group.size(), longest)
        dist.all_gather_into_tensor(gathered.view(-1), padded, group=group)
        return [row[:size].clone() for row, size in zip(gathered, sizes, strict=True)]
