"""One worker's side of a gradient reduction: choose a density, then compensate, compress, keep.

The same under real packets, where a communication thread runs it, and in virtual time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol

from torch import Tensor

from compressors.base import Bucket, Compressor, Workers
from controllers.base import Controller, Observation
from harness.feedback import Feedback
from harness.norms import Norms, Squares


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
    _squares: Squares | None = field(default=None, init=False)  # None: nobody asked for norms

    def open(self, seen: Observation | None) -> None:
        """Choose the density of an exchange; `seen` is the last one, None before the first."""
        density = self.controller.density(seen)
        if self.agree != "local":
            density = self.workers.agree(density, self.agree)
        if not 0 < density <= 1:
            raise ValueError(f"controller chose density {density}, allowed (0, 1]")
        self.density = density
        self._squares = Squares() if getattr(self.controller, "needs_norms", False) else None

    def norms(self) -> Norms:
        """Of the exchange in progress, for a controller that needs them."""
        return Norms() if self._squares is None else self._squares.norms()

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
        FloatingPointError for a gradient that is not finite, before anything has changed.
        """
        self._check_finite(step, names, gradients, buffer)
        sizes = [gradient.numel() for gradient in gradients]
        residual = self.feedback.recall(names, sizes, buffer)
        if self._squares is not None:
            self._squares.add_input(buffer, residual)
        grad, added = self._compensated(residual, buffer)
        parts = [
            part.view(gradient.shape)
            for part, gradient in zip(grad.split(sizes), gradients, strict=True)
        ]
        # What was not sent is measured after the mean is written, which may then not lie there.
        room = None if self._squares is not None and residual is None else buffer
        bucket = Bucket(index, step, grad, parts, names, added, room, parameters)
        reduced = self.compressor.reduce(bucket, self.density, self.workers)
        if self._squares is not None:
            self._squares.add_unsent(reduced.unsent)
        if reduced.mean.data_ptr() != buffer.data_ptr():
            buffer.copy_(reduced.mean)
        self.feedback.keep(names, reduced.unsent)

    def _check_finite(
        self, step: int, names: tuple[str, ...], gradients: list[Tensor], buffer: Tensor
    ) -> None:
        """One read; a sum that is not finite may have overflowed, and only then there is more."""
        if isfinite(float(buffer.sum())):
            return
        for name, gradient in zip(names, gradients, strict=True):
            if count := int((~gradient.isfinite()).sum()):
                raise FloatingPointError(
                    f"the gradient of {name} has {count} of {gradient.numel()} elements that are "
                    f"not finite, at rank {self.workers.rank} in step {step}; it was not sent. "
                    "Take a lower optimizer.lr, or look at that rank's batch"
                )

    def _compensated(
        self, residual: Tensor | None, gradient: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """G + e; or e and the g that the compressor will add."""
        if residual is None:
            return gradient, None
        if getattr(self.compressor, "adds", False):
            return residual, gradient
        return residual.add_(gradient), None
