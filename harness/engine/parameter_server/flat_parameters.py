"""A model whose parameters lie in one vector, bucket by bucket."""

import torch
from torch import Tensor, nn

from harness.engine.training.buckets import Buckets
from harness.workloads.buckets import BucketMb


class FlatParameters(Buckets):
    """The parameters of `model` are moved into `weights`, [n], in the order of DDP's buckets."""

    def __init__(self, model: nn.Module, bucket_mb: BucketMb = None) -> None:
        named = dict(model.named_parameters())
        if not all(p.requires_grad and p.dtype == torch.float32 for p in named.values()):
            raise ValueError("model: every parameter must be trained, and float32, on a server")
        order = list(reversed(named.values()))
        self.weights = torch.cat([parameter.detach().flatten() for parameter in order])
        parts = self.weights.split([parameter.numel() for parameter in order])
        for parameter, part in zip(order, parts, strict=True):
            parameter.data = part.view_as(parameter)
        super().__init__(named, bucket_mb)
        self.buckets = self.at(0)  # of every push


def buffers_of(model: nn.Module) -> Tensor:
    """All buffers of `model` as they are in memory, uint8 [bytes]."""
    parts = [each.detach().contiguous().flatten().view(torch.uint8) for each in model.buffers()]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def set_buffers(model: nn.Module, content: Tensor) -> None:
    """Put what `buffers_of` another such model gave into `model`."""
    first = 0
    for buffer in model.buffers():
        part = content[first : first + buffer.nbytes].clone()
        buffer.copy_(part.view(buffer.dtype).view_as(buffer))
        first += buffer.nbytes
