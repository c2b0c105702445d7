"""The compressed gradient that a trainer's thread pushes, and the drains of its residual."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.exchange.feedback import Residual
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.engine.parameter_server.captured import Call, Captured, Contribution


@dataclass
class Drain:
    """Schedule that empties the residual of a layer with probability 1 / `period` in each step.

    Gupta et al. (2021) drain every million steps, as a residual that old belongs to other weights;
    they discard it. With `flushes` it is sent instead. `seed` decides when.
    """

    period: float | None  # None: never
    flushes: bool
    seed: int
    generator: torch.Generator = field(default_factory=torch.Generator, init=False)

    def __post_init__(self) -> None:
        self.generator.manual_seed(self.seed)

    def due(self, layers: int) -> list[int]:
        """Draw the numbers in [0, layers) of the layers to drain in this step."""
        if self.period is None:
            return []
        drawn = torch.rand(layers, generator=self.generator, dtype=torch.float64)
        return (drawn < 1 / self.period).nonzero().flatten().tolist()


class Compressed(NamedTuple):
    """A gradient to push, and the names of the parameters that were drained."""

    push: Contribution
    drained: list[str]


@dataclass
class Gradient:
    """The gradient of one thread; `reduction` may share residual and compressor with others.

    They share without a lock (Hogwild; Niu et al., 2011): a part of the residual that one thread
    adds or removes may be lost, or be sent twice.
    """

    reduction: Reduction
    captured: Captured
    drain: Drain

    def recall(self, laid: Sequence[BucketBuffers]) -> None:
        """Allocate the residual of all buckets, before other threads use it."""
        for grad, names, gradients, _ in laid:
            self.reduction.feedback.recall(names, [part.numel() for part in gradients], grad)

    def compress(self, step: int, laid: Sequence[BucketBuffers]) -> Compressed:
        """Compress the gradient in `laid` at the chosen density; its buffers are overwritten."""
        reduction, buckets = self.reduction, list[list[Call]]()
        for index, bucket in enumerate(laid):
            reduction.reduce(step, index, bucket)
            buckets.append(self.captured.take())
        drained = self._drain(buckets, laid)
        return Compressed(Contribution(step, reduction.density, buckets), drained)

    def _drain(self, buckets: list[list[Call]], laid: Sequence[BucketBuffers]) -> list[str]:
        """Flush residuals that are due into `buckets`, or discard them; return their names."""
        residuals = self.residuals()
        if not residuals:
            return []
        where = [(b, n) for b, part in enumerate(laid) for n in range(len(part.names))]
        drained = []
        for layer in self.drain.due(len(where)):
            bucket, number = where[layer]
            part = laid[bucket]
            drained.append(part.names[number])
            residual = residuals[part.names[number]]
            if self.drain.flushes:
                first = sum(gradient.numel() for gradient in part.gradients[:number])
                [(values, index)] = buckets[bucket]
                buckets[bucket] = [_flushed(values, index, residual, first)]
            else:
                residual.zero_()
        return drained

    def residuals(self) -> dict[str, Tensor]:
        """Return the residual of each parameter, not copied; empty without error feedback."""
        feedback = self.reduction.feedback
        return feedback.by_parameter() if isinstance(feedback, Residual) else {}

    def residual_norm(self) -> float:
        parts = [part.norm() for part in self.residuals().values()]
        return float(torch.stack(parts).norm()) if parts else 0.0


def _flushed(values: Tensor, index: Tensor, part: Tensor, first: int) -> Call:
    """Move the residual `part`, whose first entry has position `first`, into a sparse message.

    Entries stay at positions that the message has already: another thread has added them since.
    """
    where = part.clone().nonzero().flatten()  # of a copy, as other threads write meanwhile
    where = where[~torch.isin(where + first, index)]
    values = torch.cat([values, part[where]])
    part[where] = 0
    index, order = torch.cat([index, (where + first).to(index.dtype)]).sort()
    return values[order], index
