"""One worker's side of a gradient reduction: choose a density, then compensate, compress, keep.

The same over packets, where it runs beside backward, and in virtual time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import nan
from typing import NamedTuple, Protocol

from torch import Tensor

from compressors.base import Bucket, Compressor, Workers
from compressors.buffers import Buffers
from compressors.checks import check_reduced
from controllers.base import Controller, Observation
from harness.engine.exchange.decisions import density_of
from harness.engine.exchange.feedback import Feedback
from harness.engine.exchange.norms import Norms, SquaredNorms

TOLD = 62  # durations in one message, which then has 512 bytes


class BucketBuffers(NamedTuple):
    """One bucket of gradients."""

    buffer: Tensor  # [n]; the gradient, then the mean
    names: tuple[str, ...]
    gradients: list[Tensor]  # views of buffer by parameter, shaped
    parameters: Sequence[Tensor] = ()  # in the same order; none where they have only a shape


# At a bucket in an exchange of that number, and its residual, [n], before they are compressed.
Look = Callable[[int, BucketBuffers, Tensor | None], None]


class AgreeingWorkers(Workers, Protocol):
    """Workers that can also settle on one value."""

    def agree(self, value: float, how: str) -> float:
        """One value for all: `how` is `min` or `mean` of theirs."""
        ...

    def all_reduce_min(self, values: list[float]) -> list[float]:
        """Element by element the smallest of theirs; all bring as many."""
        ...


@dataclass
class Reduction:
    """State of a worker between exchanges: compressor, controller and residual."""

    compressor: Compressor
    controller: Controller
    agree: str  # local | min | mean
    feedback: Feedback
    workers: AgreeingWorkers
    density: float = field(default=1.0, init=False)  # of the exchange in progress
    look: Look | None = field(default=None, init=False)  # of a watch, at what is compressed
    _squares: SquaredNorms | None = field(default=None, init=False)  # None: nobody asked for norms
    _sent: int | None = field(default=None, init=False)  # entries; None: the compressor tells none
    _entries: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        same = self.controller.same_everywhere  # then nothing is to be told
        self._asks = self.agree != "local" and not same

    def open(self, seen: Observation | None, durations_s: Sequence[float] | None = None) -> None:
        """Choose the density of an exchange; `seen` is the last one, None before the first.

        `durations_s` are what its collectives took here, in emulated seconds. Where workers agree,
        they replace its delay: less by the time that those who came first waited for the last.
        """
        if self._asks and seen is not None and durations_s is not None:
            seen = replace(seen, comm_s=self._without_waiting(durations_s))
        density = density_of(self.controller, seen)
        if self._asks:
            density = self.workers.agree(density, self.agree)
        self.density = density
        self._sent, self._entries = None, 0
        self._squares = SquaredNorms() if self.controller.needs_norms else None

    def _without_waiting(self, durations_s: Sequence[float]) -> float:
        """Sum over collectives of the shortest time that any worker saw.

        A collective ends for all at once, and the last to begin it waits for nobody. Of more than
        TOLD collectives, some in a row count as one. The message has one size, whatever is in it.
        """
        count = len(durations_s)
        each = max(1, -(-count // TOLD))
        sums = [sum(durations_s[first : first + each]) for first in range(0, count, each)]
        padding = [0.0] * (TOLD - len(sums))
        fewest, most, *shortest = self.workers.all_reduce_min([count, -count, *sums, *padding])
        if fewest != -most:
            raise RuntimeError(
                f"workers called from {fewest:.0f} to {-most:.0f} collectives in one exchange, "
                f"{count} at rank {self.workers.rank}; a compressor must call the same on all"
            )
        return sum(shortest)

    def phases_s(self, seconds: float) -> list[float]:
        """Divide `seconds` of compression among the phases before each collective."""
        phases = self.compressor.phases
        return [seconds * phase / sum(phases) for phase in phases]

    def _count(self, entries: int) -> None:
        if (sent := self.compressor.sent_entries) is not None:
            of = self.compressor.sent_of
            self._sent = (self._sent or 0) + sent
            self._entries += entries if of is None else of

    def achieved_density(self) -> float:
        """Share of entries contributed in the exchange in progress; nan: as density says."""
        return nan if self._sent is None or not self._entries else self._sent / self._entries

    def norms(self) -> Norms:
        """Norms of the exchange in progress, for a controller that needs them; nan for others."""
        return Norms() if self._squares is None else self._squares.norms()

    def reduce(
        self, step: int, index: int, laid: BucketBuffers, workers: Workers | None = None
    ) -> None:
        """Turn the gradient in bucket `index` of exchange `step` into the mean over workers.

        The compressor gets `workers`, which may let other buckets go on; None: the reduction's.
        FloatingPointError for a gradient that is not finite, before anything is sent; the residual
        may then have been added, and is of no more use. A bucket without elements stays as it is.
        """
        buffer, names, gradients, parameters = laid
        if buffer.numel() == 0:
            return
        sizes = [gradient.numel() for gradient in gradients]
        residual = self.feedback.recall(names, sizes, buffer)
        if self.look is not None:
            self.look(step, laid, residual)
        if self._squares is not None:
            self._squares.add_input(buffer, residual)
        # What was not sent is measured after the mean is written, which may then not lie there.
        room = None if self._squares is not None and residual is None else buffer
        buffers = Buffers(buffer, residual, room, partial(self._examine, step, names, sizes))
        shapes = [gradient.shape for gradient in gradients]
        bucket = Bucket(index, step, names, shapes, buffers, parameters)
        n = buffer.numel()
        reduced = self.compressor.reduce(bucket, self.density, workers or self.workers)
        check_reduced(self.compressor, reduced, n, buffer.device)
        self._count(n)
        if self._squares is not None:
            self._squares.add_unsent(reduced.unsent)
        if reduced.mean.data_ptr() != buffer.data_ptr():
            buffer.copy_(reduced.mean)
        self.feedback.keep(names, reduced.unsent)

    def _examine(self, step: int, names: tuple[str, ...], sizes: list[int], flat: Tensor) -> None:
        """Names the first parameter of which `flat`, [n], has an element that is not finite."""
        for name, part in zip(names, flat.split(sizes), strict=True):
            if count := int((~part.isfinite()).sum()):
                raise FloatingPointError(
                    f"the gradient of {name} has {count} of {part.numel()} elements that are "
                    f"not finite, at rank {self.workers.rank} in step {step}; it was not sent. "
                    "Take a lower optimizer.lr, or look at that rank's batch"
                )
