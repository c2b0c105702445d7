"""One worker's side of a gradient reduction: choose a density, then compensate, compress, keep.

The same under real packets, where a communication thread runs it, and in virtual time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from compressors.base import Bucket, Compressor, Workers
from controllers.base import Controller, Observation
from harness.feedback import Feedback


class AgreeingWorkers(Workers, Protocol):
    """Workers that can also settle on one value."""

    def agree(self, value: float, how: str) -> float:
        """One value for all: `how` is `min` or `mean` of theirs."""
        ...


@dataclass
class Reduction:
    """What a worker keeps between exchanges: compressor, controller and residual."""

    compressor: Compressor
    controller: Controller
    agree: str  # local | min | mean
    feedback: Feedback
    workers: AgreeingWorkers
    density: float = field(default=1.0, init=False)  # of the exchange in progress

    def open(self, seen: Observation | None) -> None:
        """Choose the density of an exchange; `seen` is the last one, None before the first."""
        density = self.controller.density(seen)
        if self.agree != "local":
            density = self.workers.agree(density, self.agree)
        if not 0 < density <= 1:
            raise ValueError(f"controller chose density {density}, allowed (0, 1]")
        self.density = density

    def reduce(
        self,
        step: int,
        index: int,
        names: tuple[str, ...],
        gradients: list[Tensor],
        buffer: Tensor,
        parameters: Sequence[Tensor] = (),
    ) -> None:
        """Turn `buffer`, [n], this worker's gradient, into the mean over workers.

        It is bucket `index` of exchange `step`; `gradients` are its views by parameter, of the
        shapes and in the order of `names`, and so are `parameters`, where any are trained.
        """
        sizes = [gradient.numel() for gradient in gradients]
        grad, added = self._compensated(names, sizes, buffer)
        parts = [
            part.view(gradient.shape)
            for part, gradient in zip(grad.split(sizes), gradients, strict=True)
        ]
        bucket = Bucket(index, step, grad, parts, names, added, buffer, parameters)
        reduced = self.compressor.reduce(bucket, self.density, self.workers)
        if reduced.mean.data_ptr() != buffer.data_ptr():
            buffer.copy_(reduced.mean)
        self.feedback.keep(names, reduced.unsent)

    def _compensated(
        self, names: tuple[str, ...], sizes: list[int], gradient: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """G + e; or e and the g that the compressor will add."""
        residual = self.feedback.recall(names, sizes, gradient)
        if residual is None:
            return gradient, None
        if getattr(self.compressor, "adds", False):
            return residual, gradient
        return residual.add_(gradient), None
