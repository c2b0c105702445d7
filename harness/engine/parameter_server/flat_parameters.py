"""A model whose parameters lie in one vector, bucket by bucket."""

import torch
from torch import Tensor, nn

from harness.engine.training.buckets import Buckets
from harness.workloads.buckets import BucketMb


class FlatParameters(Buckets):
    """The parameters of a model, moved into one vector `weights`, [n], in DDP's bucket order."""

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
    """Return the memory of all buffers of `model`, uint8 [bytes]."""
    parts = [part.detach().contiguous().flatten().view(torch.uint8) for part in model.buffers()]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def set_buffers(model: nn.Module, content: Tensor) -> None:
    """Set the buffers of `model` to `content`, which `buffers_of` an equal model returned."""
    first = 0
    for buffer in model.buffers():
        part = content[first : first + buffer.nbytes].clone()
        buffer.copy_(part.view(buffer.dtype).view_as(buffer))
        first += buffer.nbytes
