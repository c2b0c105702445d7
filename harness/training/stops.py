"""Where a run stops its clock: to evaluate, to save, and for good."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.settings import Settings

LOWER_IS_BETTER = ("perplexity", "ppl", "loss", "error")


def lower_is_better(metric: str) -> bool:
    return any(word in metric.lower() for word in LOWER_IS_BETTER)


@dataclass(frozen=True)
class Stops:
    """Numbers are of steps done."""

    steps: int
    eval_every: int
    checkpoint_every: int | None  # 0: only at the end; None: never
    metric: str = "accuracy"
    ends_at: float | None = None  # value of `metric` that ends the run

    @classmethod
    def of(cls, settings: Settings, steps: int, metric: str) -> "Stops":
        """`metric` is the data set's."""
        target = settings["target"]
        ends_at = target["value"] if target.get("ends_run") else None
        every = settings["eval_every"], settings["checkpoint_every"]
        return cls(steps, *every, target["metric"] or metric, ends_at)

    def evaluates(self, done: int) -> bool:
        return done == self.steps or done % self.eval_every == 0

    def ends(self, done: int, metrics: Mapping[str, float]) -> bool:
        """Whether the run is over, given what was evaluated just now, if anything."""
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
