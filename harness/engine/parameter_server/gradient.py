"""Compressed gradient that a trainer thread pushes, and the draining of its residual."""

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
    """Random schedule: empty a layer's residual with probability 1 / `period` in each step.

    Gupta et al. (2021) drain every million steps, as such an old residual belongs to other weights;
    they discard it. `seed` decides when.
    """

    period: float | None  # None: never
    seed: int
    generator: torch.Generator = field(default_factory=torch.Generator, init=False)

    def __post_init__(self) -> None:
        self.generator.manual_seed(self.seed)

    def due(self, layers: int) -> list[int]:
        """Draw the layers to drain in this step, as numbers in [0, layers)."""
        if self.period is None:
            return []
        drawn = torch.rand(layers, generator=self.generator, dtype=torch.float64)
        return (drawn < 1 / self.period).nonzero().flatten().tolist()


class Compressed(NamedTuple):
    """A gradient to push, and the names of the parameters whose residual was drained."""

    push: Contribution
    drained: list[str]


@dataclass
class Gradient:
    """The gradient of one thread; `reduction` may share residual and compressor with others.

    They share without a lock (Hogwild; Niu et al., 2011): an update of the residual by one thread
    may be lost or sent twice.
    """

    reduction: Reduction
    captured: Captured
    drain: Drain

    def recall(self, laid: Sequence[BucketBuffers]) -> None:
        """Allocate the residuals of all buckets, before other threads use them."""
        for grad, names, gradients, _ in laid:
            self.reduction.feedback.recall(names, [part.numel() for part in gradients], grad)

    def compress(self, step: int, laid: Sequence[BucketBuffers]) -> Compressed:
        """Compress the gradient in `laid` at the current density; its buffers are overwritten."""
        reduction, buckets = self.reduction, list[list[Call]]()
        for index, bucket in enumerate(laid):
            reduction.reduce_bucket(step, index, bucket)
            buckets.append(self.captured.take())
        drained = self._drain(laid)
        return Compressed(Contribution(step, reduction.density, buckets), drained)

    def _drain(self, laid: Sequence[BucketBuffers]) -> list[str]:
        """Zero the residuals that are due; return the names of their parameters."""
        residuals = self.residuals()
        if not residuals:
            return []
        names = [name for part in laid for name in part.names]
        drained = [names[layer] for layer in self.drain.due(len(names))]
        for name in drained:
            residuals[name].zero_()
        return drained

    def residuals(self) -> dict[str, Tensor]:
        """Return the residual of each parameter without a copy; empty without error feedback."""
        feedback = self.reduction.feedback
        return feedback.by_parameter() if isinstance(feedback, Residual) else {}

    def residual_norm(self) -> float:
        parts = [part.norm() for part in self.residuals().values()]
        return float(torch.stack(parts).norm()) if parts else 0.0
