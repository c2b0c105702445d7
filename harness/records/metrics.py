"""Meaning of the metrics in evaluations.csv: ranges and directions."""

from typing import NamedTuple

LOWER_IS_BETTER = ("perplexity", "ppl", "loss", "error")


class MetricRange(NamedTuple):
    """Possible values of a metric: above `low`, and at most `high`."""

    low: float
    high: float

    @property
    def said(self) -> str:
        ends = f"in ({self.low:g}, {self.high:g}]"
        return ends if self.high < float("inf") else f"above {self.low:g}"


RANGES = {
    "accuracy": MetricRange(0, 1),
    "bleu": MetricRange(0, 100),
    "loss": MetricRange(0, float("inf")),
    "perplexity": MetricRange(1, float("inf")),
}


def lower_is_better(metric: str) -> bool:
    return any(word in metric.lower() for word in LOWER_IS_BETTER)


def beyond(metric: str, value: float) -> str:
    """Say what a target must be if `metric` cannot reach `value`. Empty if it can."""
    known = RANGES.get(metric)
    if known is None or known.low < value <= known.high:
        return ""
    percent = f" ({value:g} % is {value / 100:g})" if known.high == 1 and 1 < value <= 100 else ""
    return f"{known.said} for {metric}{percent}, or null"
