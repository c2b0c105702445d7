"""What ranks do while their clock stands still: they evaluate, save, and end the run or go on."""

from collections.abc import Callable
from dataclasses import dataclass

from controllers.base import Observation
from harness.clock import RankClock
from harness.engine.training.stopping import StopSchedule
from harness.engine.training.together import Together
from harness.records.run_directory import Evaluation, Table

Metrics = dict[str, float]
Save = Callable[[int, Observation | None], None]  # a checkpoint of so many steps, the last as seen


def no_checkpoint(done: int, seen: Observation | None) -> None:
    """Save nothing: nothing can go on from this run."""


@dataclass
class Rest:
    """All ranks stop their clock `together`; `evaluate` and `save` are called by all of them.

    Metrics are equal on every rank, none where there is nothing to evaluate; one has the `table`.
    """

    stops: StopSchedule
    done: int  # steps, at the last rest
    clock: RankClock
    together: Together
    evaluate: Callable[[], Metrics]
    save: Save
    table: Table | None

    def __call__(self, done: int, seen: Observation) -> bool | None:
        """Rest if `done` steps call for it: True if the run ends there; None without a rest."""
        if self.is_due(done):
            return self.take(done, self.clock.now(), seen)
        self.done = done
        return None

    def is_due(self, done: int) -> bool:
        return self._evaluates(done) or self._saves(done)

    def take(self, done: int, arrived: float, seen: Observation | None, last: bool = False) -> bool:
        """Rest, this rank from `arrived` on; `last`: it ends in any case."""
        evaluates, saves = self._evaluates(done) or last, self._saves(done)
        self.done = done
        self.together.stop(arrived)
        last = self.stops.ends(done, self._evaluated(arrived) if evaluates else {}) or last
        if saves or self.stops.saves(done, last):
            self.save(done, seen)
        self.together.barrier_min(arrived)
        if not last:
            self.together.go_on(arrived)
        return last

    def _evaluates(self, done: int) -> bool:
        return any(map(self.stops.evaluates, range(self.done + 1, done + 1)))

    def _saves(self, done: int) -> bool:
        fresh = range(self.done + 1, done + 1)
        return any(self.stops.saves(each, last=False) for each in fresh)

    def _evaluated(self, at: float) -> Metrics:
        metrics, time_s = self.evaluate(), at / self.clock.dilation
        if self.table is not None and metrics:
            rows = [Evaluation(self.done, time_s, name, value) for name, value in metrics.items()]
            self.table.append(*rows)
        return metrics
