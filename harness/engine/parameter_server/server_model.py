"""The model that a server holds: it checks pushes and applies them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from compressors.base import Bucket, Compressor
from compressors.buffers import Buffers
from compressors.checks import check_reduced
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.parameter_server.captured import Call, Contribution, Reading, is_sparse
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


@dataclass
class ServerModel:
    """A model whose parameters lie in one vector, and its optimizer step.

    `compressor` decompresses pushes. A pull during an update may see a part of it.
    """

    model: nn.Module
    update: Callable[[int], None]  # one optimizer step with the gradients, given the version
    compressor: Compressor
    bucket_mb: BucketMb = None
    version: int = 0  # number of updates

    def __post_init__(self) -> None:
        self.flat = FlatParameters(self.model, self.bucket_mb)

    @property
    def vector(self) -> Tensor:
        """The weights, [n]."""
        return self.flat.weights

    def fault(self, push: Contribution) -> str | None:
        """Return why `push` must be rejected; None if its values and positions are valid."""
        if not all(bool(tensor.isfinite().all()) for tensor in push.tensors()):
            return "a value is not finite"
        for part, calls in zip(self.flat.buckets, push.buckets, strict=True):
            if is_sparse(calls) and not _fits(calls[0], part.buffer.numel()):
                return "its positions are not distinct ones of the model"
        return None

    def apply(self, pushes: Sequence[Contribution]) -> None:
        """Make one optimizer step with the mean of `pushes`, summed in their order.

        Raise ProtocolError, IndexError or RuntimeError for a push that its compressor cannot have
        made; the weights are then unchanged.
        """
        for index, part in enumerate(self.flat.buckets):
            self._mean(index, part, pushes)
        self.flat.give()
        self.update(self.version)
        self.version += 1

    def _mean(self, index: int, part: BucketBuffers, pushes: Sequence[Contribution]) -> None:
        """Write the mean of bucket `index` of `pushes` to `part.buffer`."""
        calls = [push.buckets[index] for push in pushes]
        if all(map(is_sparse, calls)):
            _average_(part.buffer, [call for (call,) in calls])
            return
        grad, step = part.buffer.zero_(), pushes[0].step
        shapes = [gradient.shape for gradient in part.gradients]
        bucket = Bucket(index, step, part.names, shapes, Buffers(grad), part.parameters)
        reduced = self.compressor.reduce(bucket, pushes[0].density, Reading(calls))
        check_reduced(self.compressor, reduced, part.buffer.numel(), grad.device)
        if reduced.mean.data_ptr() != grad.data_ptr():
            grad.copy_(reduced.mean)


def _fits(call: Call, n: int) -> bool:
    """Return True if the call has one value for each of its distinct positions in [0, n)."""
    values, index = call
    if values.numel() != index.numel():
        return False
    if not len(index):
        return True
    least, most = (int(end) for end in index.aminmax())  # as differences may overflow
    ordered = index if bool((index.diff() > 0).all()) else index.sort().values
    return 0 <= least and most < n and bool((ordered.diff() > 0).all())


def _average_(grad: Tensor, calls: Sequence[Call]) -> None:
    """Fill `grad` with the mean of the sparse gradients `calls`."""
    grad.zero_()
    for values, index in calls:
        grad.index_add_(0, index, values)
    if len(calls) > 1:
        grad.mul_(1 / len(calls))
