"""What a trainer's thread pushes: a gradient, compressed, and now and then a drained residual."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from harness.exchange.feedback import Residual
from harness.exchange.reduction import Reduction


class Captured:
    """In the place of other workers: keeps what a compressor hands to its only collective."""

    rank, size = 0, 1
    values: Tensor  # float32 [k]
    index: Tensor | None  # [k]; None: all entries, in order

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        self.values, self.index = tensor, None
        return tensor

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        self.values, self.index = tensors
        return [tensors]

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        raise TypeError("a server is sent one message: a compressor cannot use all_to_all")

    def agree(self, value: float, how: str) -> float:
        return value

    def least(self, values: list[float]) -> list[float]:
        return values


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
        """Which of so many are to be drained in this step."""
        if self.period is None:
            return []
        drawn = torch.rand(layers, generator=self.generator, dtype=torch.float64)
        return (drawn < 1 / self.period).nonzero().flatten().tolist()


class Compressed(NamedTuple):
    """A gradient as it is pushed; in memory that this thread's next one may use."""

    values: Tensor  # float32 [k]
    index: Tensor | None  # type: ignore[assignment]  # [k], ascending; None: all entries
    drained: list[int]  # layers


@dataclass
class Gradient:
    """Of one thread; `reduction` may share its residual and compressor with other threads.

    Without a lock (Hogwild; Niu et al., 2011): what one thread adds to the residual, or takes out
    of it, may be lost, or be sent by two.
    """

    reduction: Reduction
    captured: Captured
    drain: Drain
    names: tuple[str, ...]
    shapes: Sequence[torch.Size]

    def __post_init__(self) -> None:
        self._sizes = [shape.numel() for shape in self.shapes]
        self.reduction.open(None)

    @property
    def density(self) -> float:
        return self.reduction.density

    def compress(self, step: int, flat: Tensor) -> Compressed:
        """Of `flat`, [n], which is used up."""
        cut = zip(flat.split(self._sizes), self.shapes, strict=True)
        parts = [part.view(shape) for part, shape in cut]
        self.reduction.reduce(step, 0, self.names, parts, flat)
        found = Compressed(self.captured.values, self.captured.index, [])
        residual = self.residual(flat)
        if residual is None:
            return found
        layers = self.drain.due(len(self._sizes))
        for layer in layers:
            first = sum(self._sizes[:layer])
            part = residual[first : first + self._sizes[layer]]
            if self.drain.flushes:
                found = _flushed(found, part, first)
            else:
                part.zero_()
        return found._replace(drained=layers)

    def residual(self, like: Tensor) -> Tensor | None:
        """The residual, [n], as it lies in memory; None without error feedback."""
        feedback = self.reduction.feedback
        if not isinstance(feedback, Residual):
            return None
        return feedback.recall(self.names, self._sizes, like)


def _flushed(found: Compressed, part: Tensor, first: int) -> Compressed:
    """With what waits in `part`, which begins at position `first`, taken out of it.

    What another thread has put where this one has just sent something stays.
    """
    assert found.index is not None  # who has a residual sends positions
    where = part.clone().nonzero().flatten()  # which counts twice: others write meanwhile
    where = where[~torch.isin(where + first, found.index)]
    values = torch.cat([found.values, part[where]])
    part[where] = 0
    index, order = torch.cat([found.index, (where + first).to(found.index.dtype)]).sort()
    return Compressed(values[order], index, found.drained)
