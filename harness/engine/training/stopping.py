"""Schedule of evaluations and checkpoints, and the end of a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.config.run import Run
from harness.records.metrics import lower_is_better


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
