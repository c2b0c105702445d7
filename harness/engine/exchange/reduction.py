"""One worker's gradient reduction: choose a density, then reduce bucket by bucket.

In runs over a real network the lane thread calls it (`bucket_lanes`). In simulated runs the rank's
thread calls it (`harness.virtual.exchange`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import nan
from numbers import Integral, Real
from typing import NamedTuple, Protocol

from torch import Tensor

from compressors.base import Bucket, Compressor, Workers
from compressors.buffers import Buffers
from compressors.checks import check_reduced, refuse
from controllers.base import Controller, Observation
from harness.engine.exchange.feedback import Feedback
from harness.engine.exchange.stats import Norms, SquaredNorms

MOST_DURATIONS = 62  # in one message of 512 bytes


class BucketBuffers(NamedTuple):
    """Memory of one bucket of gradients, with the names and views of its parameters."""

    buffer: Tensor  # [n]; the gradient, then the mean
    names: tuple[str, ...]
    gradients: list[Tensor]  # views of buffer by parameter, shaped
    parameters: Sequence[Tensor] = ()  # in the same order; empty if only their shapes are known


# Called with exchange number, bucket and residual, [n], before the bucket is compressed.
Look = Callable[[int, BucketBuffers, Tensor | None], None]


class AgreeingWorkers(Workers, Protocol):
    """Workers that can also agree on one value."""

    def agree(self, value: float, how: str) -> float:
        """Return the minimum or mean of all workers' values. `how` is "min" or "mean"."""
        ...

    def all_reduce_min(self, values: list[float]) -> list[float]:
        """Return the elementwise minimum over workers, which must pass equally many values."""
        ...


@dataclass
class Reduction:
    """One worker's compressor, controller and residuals, kept from exchange to exchange."""

    compressor: Compressor
    controller: Controller
    agree: str  # local | min | mean
    feedback: Feedback
    workers: AgreeingWorkers
    density: float = field(default=1.0, init=False)  # of the exchange in progress
    look: Look | None = field(default=None, init=False)  # called before each bucket is compressed
    _squares: SquaredNorms | None = field(default=None, init=False)  # None if not needed
    _sent: int | None = field(default=None, init=False)  # entries; None if not counted
    _entries: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._agrees = self.agree != "local" and not self.controller.same_everywhere

    def open(self, seen: Observation | None, durations_s: Sequence[float] | None = None) -> None:
        """Start an exchange and choose its density. `seen` is the previous one, None at first.

        `durations_s` are the emulated seconds of the previous exchange's collectives. If workers
        agree on a density, the controller sees the delay without the wait for the slowest worker.
        """
        if self._agrees and seen is not None and durations_s is not None:
            seen = replace(seen, comm_s=self._without_waiting(durations_s))
        density = density_of(self.controller, seen)
        if self._agrees:
            density = self.workers.agree(density, self.agree)
        self.density = density
        self._sent, self._entries = None, 0
        self._squares = SquaredNorms() if self.controller.needs_norms else None

    def _without_waiting(self, durations_s: Sequence[float]) -> float:
        """Return the sum, over collectives, of the shortest duration at any worker.

        A collective ends for all workers at once, so the last one to begin does not wait. The
        message has a fixed size: more than MOST_DURATIONS collectives are summed in groups. Raise
        RuntimeError if workers called different numbers of collectives.
        """
        count = len(durations_s)
        size = max(1, -(-count // MOST_DURATIONS))  # of a group
        sums = [sum(durations_s[first : first + size]) for first in range(0, count, size)]
        padding = [0.0] * (MOST_DURATIONS - len(sums))
        fewest, most, *shortest = self.workers.all_reduce_min([count, -count, *sums, *padding])
        if fewest != -most:
            raise RuntimeError(
                f"workers called from {fewest:.0f} to {-most:.0f} collectives in one exchange, "
                f"{count} at rank {self.workers.rank}; a compressor must call the same on all"
            )
        return sum(shortest)

    def phases_s(self, seconds: float) -> list[float]:
        """Divide `seconds` of compression into the parts before each collective."""
        phases = self.compressor.phases
        return [seconds * phase / sum(phases) for phase in phases]

    def outcome(self) -> dict[str, float]:
        """Return density, achieved density and norms of the current exchange, by column name.

        The achieved density is the share of entries sent, NaN if the compressor does not count
        them. The norms are NaN unless the controller needs them.
        """
        counts = self._sent is not None and self._entries > 0
        norms = Norms() if self._squares is None else self._squares.norms()
        return {
            "density": self.density,
            "achieved_density": self._sent / self._entries if counts else nan,  # type: ignore[operator]
            **norms._asdict(),
        }

    def reduce_bucket(
        self, step: int, index: int, laid: BucketBuffers, workers: Workers | None = None
    ) -> None:
        """Replace the gradient in bucket `index` of exchange `step` by the mean over workers.

        The compressor communicates through `workers`, or the reduction's own if None. Raise
        FloatingPointError before sending if the gradient is not finite. The residual is then
        unusable, because the gradient may already have been added. An empty bucket is skipped.
        """
        buffer, names, gradients, parameters = laid
        n = buffer.numel()
        if n == 0:
            return
        sizes = list(map(Tensor.numel, gradients))
        shapes = [gradient.shape for gradient in gradients]

        # Fetch the residual: the compressor adds it in its first pass over the gradient.
        residual = self.feedback.recall(names, sizes, buffer)
        if self.look is not None:
            self.look(step, laid, residual)
        if self._squares is not None:
            self._squares.add_input(buffer, residual)
        # The norm of the unsent part is computed after the mean is written: they may not overlap.
        out = None if self._squares is not None and residual is None else buffer
        buffers = Buffers(buffer, residual, out, partial(self._require_finite, step, names, sizes))

        # Compress, communicate, decompress.
        bucket = Bucket(index, step, names, shapes, buffers, parameters)
        reduced = self.compressor.reduce(bucket, self.density, workers or self.workers)
        check_reduced(self.compressor, reduced, n, buffer.device)
        if (sent := self.compressor.sent_entries) is not None:
            self._sent = (self._sent or 0) + sent
            self._entries += n if self.compressor.sent_of is None else self.compressor.sent_of

        # Write the mean, and keep the residual.
        if self._squares is not None:
            self._squares.add_unsent(reduced.unsent)
        if reduced.mean.data_ptr() != buffer.data_ptr():
            buffer.copy_(reduced.mean)
        self.feedback.keep(names, reduced.unsent)

    def _require_finite(
        self, step: int, names: tuple[str, ...], sizes: list[int], flat: Tensor
    ) -> None:
        """Raise FloatingPointError for the first parameter with NaN or inf in `flat`, [n]."""
        for name, part in zip(names, flat.split(sizes), strict=True):
            if count := int((~part.isfinite()).sum()):
                raise FloatingPointError(
                    f"the gradient of {name} has {count} of {part.numel()} elements that are "
                    f"not finite, at rank {self.workers.rank} in step {step}; it was not sent. "
                    "Take a lower optimizer.lr, or look at that rank's batch"
                )


def density_of(controller: Controller, seen: Observation | None) -> float:
    """Return the density of the controller's next exchange. Raise BadPart if not in (0, 1]."""
    density = controller.density(seen)
    if not (isinstance(density, Real) and 0 < density <= 1):
        refuse(controller, "density()", "a number in (0, 1]", density)
    return float(density)


def horizon_of(controller: Controller, seen: Observation) -> int:
    """Return the steps to the controller's next exchange. Raise BadPart if no integer >= 1."""
    steps = controller.horizon(seen)
    if not (isinstance(steps, Integral) and steps >= 1):
        refuse(controller, "horizon()", "a whole number >= 1", steps)
    return int(steps)


def state_of(controller: Controller) -> dict[str, float]:
    """Return the controller's recorded values. Raise BadPart unless a dict of numbers."""
    state = controller.state()
    if not isinstance(state, Mapping):
        refuse(controller, "state()", "a dict of names and numbers", state)
    for name, value in state.items():
        if not isinstance(value, Real):
            refuse(controller, f"state()[{name!r}]", "a number", value)
    return dict(state)
