"""Begin and end of each step's exchange, and its measurements.

The training loop of a rank uses it, and so do the hooks of `gradnet.attach`, which detect the begin
and end of a step in a user's model and optimizer.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from controllers.base import Measurement, Observation
from harness.clock import RankClock
from harness.engine.exchange.reduction import Reduction
from harness.engine.exchange.stats import Exchanged, Release
from harness.records import columns


class Exchanging(Protocol):
    """Interface of a rank's gradient exchange, as a step uses it."""

    workers: Any  # workers of the exchange, with a `world_size`

    @property
    def reduction(self) -> Reduction: ...

    def begin(self, release: Release | None) -> None: ...

    def finish(self) -> Exchanged: ...

    def observe(self, seen: Observation) -> None: ...

    def close(self) -> None: ...


class EndedStep(NamedTuple):
    """Measurements of a step whose gradients have been exchanged."""

    seen: Observation  # observation for the controller's next choice
    took: Exchanged
    end: float  # on the clock


@dataclass
class StepExchange:
    """Exchange that is begun and ended once a step; times are real seconds on `clock`."""

    exchange: Exchanging
    clock: RankClock
    began: float | None = field(default=None, init=False)  # None between two exchanges

    def begin(self, began: float, release: Release | None = None) -> None:
        """Begin the exchange of a step that began at `began`. `release` paces it: see Exchange."""
        self.began = began
        self.exchange.begin(release)

    def drop(self) -> None:
        """Forget the current exchange, which was undone. The controller does not observe it."""
        self.began = None

    def end(self, step: int) -> EndedStep:
        """End the exchange of `step` after backward, pass it to the controller, and return it."""
        assert self.began is not None
        took = self.exchange.finish()
        end, began, self.began = self.clock.now(), self.began, None
        per_s = 1 / self.clock.dilation
        measured = {
            name: getattr(took, name) * (per_s if columns.unit(name) == "s" else 1)
            for name in columns.of(Measurement)
        }
        seen = Observation(
            **measured,
            step=step,
            time_s=end * per_s,
            compute_s=(took.compute_end - began) * per_s,
            workers=self.exchange.workers.world_size // self.exchange.workers.shards,
        )
        self.exchange.observe(seen)
        return EndedStep(seen, took, end)
