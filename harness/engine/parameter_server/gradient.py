"""What a trainer's thread pushes: a gradient, compressed, and now and then a drained residual."""

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
    """Empties the residual of a layer with probability 1 / `period` each step of a thread.

    The paper does so every million steps, as what has waited that long is of other weights; what
    it calls a drain is `zero`. `flush` sends it instead. `seed` decides when.
    """

    period: float | None  # None: never
    flushes: bool
    seed: int
    generator: torch.Generator = field(default_factory=torch.Generator, init=False)

    def __post_init__(self) -> None:
        self.generator.manual_seed(self.seed)

    def due(self, layers: int) -> list[int]:
        """Draw the layers, of so many, to drain in this step."""
        if self.period is None:
            return []
        drawn = torch.rand(layers, generator=self.generator, dtype=torch.float64)
        return (drawn < 1 / self.period).nonzero().flatten().tolist()


class Compressed(NamedTuple):
    """A gradient as it is pushed, and the layers that were drained."""

    push: Contribution
    drained: list[str]


@dataclass
class Gradient:
    """Gradient of one thread; `reduction` may share residual and compressor with others.

    Without a lock (Hogwild; Niu et al., 2011): what one thread adds to the residual, or takes out
    of it, may be lost, or be sent by two.
    """

    reduction: Reduction
    captured: Captured
    drain: Drain

    def recall(self, laid: Sequence[BucketBuffers]) -> None:
        """Have the residual of these, before other threads look for it."""
        for grad, names, gradients, _ in laid:
            self.reduction.feedback.recall(names, [each.numel() for each in gradients], grad)

    def compress(self, step: int, laid: Sequence[BucketBuffers]) -> Compressed:
        """Compress the gradient in `laid`, which is used up, at the density that was chosen."""
        reduction, buckets = self.reduction, list[list[Call]]()
        for index, each in enumerate(laid):
            reduction.reduce(step, index, each)
            buckets.append(self.captured.take())
        drained = self._drain(buckets, laid)
        return Compressed(Contribution(step, reduction.density, buckets), drained)

    def _drain(self, buckets: list[list[Call]], laid: Sequence[BucketBuffers]) -> list[str]:
        """Empty what is due into `buckets`, or into nothing; the names of its parameters."""
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
                first = sum(each.numel() for each in part.gradients[:number])
                [(values, index)] = buckets[bucket]
                buckets[bucket] = [_flushed(values, index, residual, first)]
            else:
                residual.zero_()
        return drained

    def residuals(self) -> dict[str, Tensor]:
        """By parameter, as they lie in memory; empty without error feedback."""
        feedback = self.reduction.feedback
        return feedback.by_parameter() if isinstance(feedback, Residual) else {}

    def residual_norm(self) -> float:
        parts = [part.norm() for part in self.residuals().values()]
        return float(torch.stack(parts).norm()) if parts else 0.0


def _flushed(values: Tensor, index: Tensor, part: Tensor, first: int) -> Call:
    """With what waits in `part`, which begins at position `first`, taken out of it.

    What another thread has put where this one has just sent something stays.
    """
    where = part.clone().nonzero().flatten()  # which counts twice: others write meanwhile
    where = where[~torch.isin(where + first, index)]
    values = torch.cat([values, part[where]])
    part[where] = 0
    index, order = torch.cat([index, (where + first).to(index.dtype)]).sort()
    return values[order], index
