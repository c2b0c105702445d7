"""A model whose parameters, and gradients, each lie in one vector."""

import torch
from torch import Tensor, nn


def flattened(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Move the parameters of `model` into one vector, and its gradients into another; [n] both.

    In the order of `parameters()`. Gradients are added to what the second holds.
    """
    parameters = list(model.parameters())
    if not all(each.requires_grad and each.dtype == torch.float32 for each in parameters):
        raise ValueError("model: every parameter must be trained, and float32, on a server")
    sizes = [each.numel() for each in parameters]
    weights = torch.cat([each.detach().flatten() for each in parameters])
    grads = torch.zeros_like(weights)
    parts = zip(parameters, weights.split(sizes), grads.split(sizes), strict=True)
    for parameter, own, grad in parts:
        parameter.data = own.view_as(parameter)
        parameter.grad = grad.view_as(parameter)
    return weights, grads


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
