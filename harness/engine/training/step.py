"""The exchange of one step after another: where each begins and ends, whoever trains.

The loop of a rank says so around its step, and so do the hooks of `gradnet.attach`, which find a
step's begin and end in a model and an optimizer of one's own.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from controllers.base import Measurement, Observation
from harness.clock import RankClock
from harness.engine.exchange.exchange_stats import Exchanged, Release
from harness.engine.exchange.reduction import Reduction
from harness.records import columns


class Exchanging(Protocol):
    """Exchange of a rank's gradients, as its steps use it."""

    workers: Any  # those that it is with: their `world_size` counts

    @property
    def reduction(self) -> Reduction: ...

    def begin(self, release: Release | None) -> None: ...

    def finish(self) -> Exchanged: ...

    def observe(self, seen: Observation) -> None: ...

    def close(self) -> None: ...


class EndedStep(NamedTuple):
    """A step whose gradients have been exchanged."""

    seen: Observation  # that the controller has for the next one
    took: Exchanged
    end: float  # on the clock


@dataclass
class StepExchange:
    """Begins and ends the exchange of each step on `clock`, whose seconds are real ones."""

    exchange: Exchanging
    clock: RankClock
    _began: float | None = field(default=None, init=False)

    @property
    def under_way(self) -> bool:
        return self._began is not None

    def begin(self, began: float, release: Release | None = None) -> None:
        """A step began at `began`; its density is chosen from now on. `release`: see Exchange."""
        self._began = began
        self.exchange.begin(release)

    def drop(self) -> None:
        """Forget the exchange that has ended: it was undone, and nobody observes it."""
        self._began = None

    def end(self, step: int) -> EndedStep:
        """Backward of `step` has returned, and the means are there."""
        assert self._began is not None
        took = self.exchange.finish()
        end, began, self._began = self.clock.now(), self._began, None
        world_size, dilation = self.exchange.workers.world_size, self.clock.dilation
        seen = observed(step, began, end, took, world_size, dilation)
        self.exchange.observe(seen)
        return EndedStep(seen, took, end)


def observed(
    step: int, begin: float, end: float, took: Exchanged, workers: int, dilation: float
) -> Observation:
    """Observation for the controller, of a step from `begin` to `end` in real seconds."""
    emulated = 1 / dilation
    return Observation(
        **columns.emulated(took, Measurement, dilation),
        step=step,
        time_s=end * emulated,
        compute_s=(took.compute_end - begin) * emulated,
        workers=workers,
    )
