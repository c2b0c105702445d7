"""Actions of ranks while their clock stands still: evaluate, save, and end or resume the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controllers.base import Observation
from harness.clock import RankClock
from harness.config.run import Run
from harness.engine.training.together import Together
from harness.records.metrics import lower_is_better
from harness.records.run_directory import Evaluation, Table

Metrics = dict[str, float]
Save = Callable[[int, Observation | None], None]  # arguments: steps done, last observation


@dataclass(frozen=True)
class StopSchedule:
    """When a run evaluates, saves and ends. All numbers count finished steps."""

    steps: int
    eval_every: int
    checkpoint_every: int | None  # 0: only at the end; None: never
    metric: str = "accuracy"
    ends_at: float | None = None  # value of `metric` that ends the run

    @classmethod
    def of(cls, run: Run, steps: int) -> "StopSchedule":
        target = run.target
        ends_at = target.value if target.ends_run else None
        metric = target.metric or run.dataset.metric
        return cls(steps, run.eval_every, run.checkpoint_every, metric, ends_at)

    def evaluates(self, done: int) -> bool:
        return done == self.steps or done % self.eval_every == 0

    def ends(self, done: int, metrics: Mapping[str, float]) -> bool:
        """Return True if the run ends after `done` steps. `metrics` may be empty."""
        if done == self.steps:
            return True
        value = metrics.get(self.metric)
        if self.ends_at is None or value is None:
            return False
        return value <= self.ends_at if lower_is_better(self.metric) else value >= self.ends_at

    def saves(self, done: int, last: bool) -> bool:
        if self.checkpoint_every is None:
            return False
        return last or bool(self.checkpoint_every and done % self.checkpoint_every == 0)


def no_checkpoint(done: int, seen: Observation | None) -> None:
    """Do nothing: this run cannot be resumed, so it has no checkpoints."""


@dataclass
class Rest:
    """Schedule of evaluations and checkpoints, during which the clock of all ranks stands still.

    All ranks call `evaluate` and `save` together. Metrics are equal on every rank, and empty if
    there is nothing to evaluate. One rank has the `table` and writes them.
    """

    stops: StopSchedule
    done: int  # steps, at the last rest
    clock: RankClock
    together: Together
    evaluate: Callable[[], Metrics]
    save: Save
    table: Table | None

    def __call__(self, done: int, seen: Observation) -> bool | None:
        """Evaluate or save if scheduled after `done` steps, given the last observation.

        Return True to end the run, False to continue, and None if nothing was scheduled.
        """
        if self.is_due(done):
            return self.take(done, self.clock.now(), seen)
        self.done = done
        return None

    def is_due(self, done: int) -> bool:
        return self._evaluates(done) or self._saves(done)

    def take(self, done: int, arrived: float, seen: Observation | None, last: bool = False) -> bool:
        """Evaluate and save. Return True if the run ends.

        This rank reached the stop at clock time `arrived`. `last` forces an evaluation and the end.
        """
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
