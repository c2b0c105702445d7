"""Rules about the effect of compression on quality, seed by seed.

A `Change` compares a method's final quality with its baseline's at the same seed; positive is
worse. A rule is decided if the whole 95 % interval lies on one side of the margin. Otherwise, and
with fewer than `LEAST_PAIRS` pairs of seeds, it is undecided or not decidable.
"""

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import pandas as pd

from harness.records.metrics import lower_is_better
from harness.reporting.analysis import load, metrics
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims.base import Found, Group, NoSuchRuns, Runs
from harness.reporting.claims.guards import LEAST_PAIRS
from harness.reporting.claims.rules import Rule

SAME = 0.001  # relative; about half of the smallest published loss of quality, 0.18 %
TRAIN_LOSS = "train loss"  # mean over workers and the last quarter of the steps
LAST = 0.25


class Change(NamedTuple):
    """Relative change of quality, positive if worse: mean over seeds and 95 % interval."""

    mean: float
    low: float
    high: float


class MethodPair(NamedTuple):
    """A method, the baseline that it is compared with, and the metric."""

    label: str
    group: Group
    method: str
    baseline: str
    metric: str = "loss"


Pairs = Callable[[Runs], list[MethodPair]]


def ended(rows: pd.DataFrame, metric: str) -> pd.Series:
    """Return the final `metric` of each run in `rows`; the worst possible value if it diverged."""
    each: Any = rows.itertuples()
    found = pd.Series([_ended(row, metric) for row in each], rows.index, dtype=float)
    return found.mask(rows.diverged, float("inf") if lower_is_better(metric) else 0.0)


def _ended(row: Any, metric: str) -> float:
    if metric == row.metric:
        return float(row.final)
    if metric != TRAIN_LOSS:
        return metrics.final_value(load.evaluations(row.path), metric)
    steps = load.steps(row.path)
    return float(steps[steps.step >= (1 - LAST) * (steps.step.max() + 1)].loss.mean())


def change(pair: MethodPair) -> Change:
    """Return the relative change from baseline to method; NoSuchRuns below `LEAST_PAIRS` pairs."""
    rows = pair.group.rows(pair.method, pair.baseline)
    rows = rows.assign(ended=ended(rows, pair.metric))
    pair.group.seen.columns.add("final")
    found = pair.group.paired(rows, "ended", pair.method, pair.baseline)
    what = f"{pair.metric} of {pair.method} and {pair.baseline} in {pair.group.experiment}"
    return over(found, what, 1 if lower_is_better(pair.metric) else -1)


def over(found: Ratio, what: str, sign: int = 1) -> Change:
    """Convert a ratio to a change; `sign` is -1 if larger values are better.

    Raise NoSuchRuns, naming `what`, if the ratio has fewer than `LEAST_PAIRS` pairs of seeds.
    """
    if found.seeds < LEAST_PAIRS:
        raise NoSuchRuns(f"needs {LEAST_PAIRS} pairs of seeds with {what}, has {found.seeds}")
    if math.isinf(found.mean):
        return Change(*[sign * found.mean] * 3)  # an infinite change has no interval
    low, high = sorted((sign * (found.low - 1), sign * (found.high - 1)))
    return Change(sign * (found.mean - 1), low, high)


def not_worse(found: Change) -> bool | None:
    """Return False if it is worse by more than `SAME`, True if not, None if undecided."""
    return True if found.high <= SAME else False if found.low > SAME else None


def worse(found: Change) -> bool | None:
    """Return True if it is worse by more than `SAME`, False if not, None if undecided."""
    decided = not_worse(found)
    return None if decided is None else not decided


def better(found: Change) -> bool | None:
    """Return True if it is better by any amount, False if not, None if undecided."""
    return True if found.high < 0 else False if found.low >= 0 else None


def not_better(found: Change) -> bool | None:
    """Return False if it is better by any amount, True if not, None if undecided."""
    decided = better(found)
    return None if decided is None else not decided


def same(found: Change) -> bool | None:
    """Return True if it changed by at most `SAME`, False if by more, None if undecided."""
    if -SAME <= found.low and found.high <= SAME:
        return True
    return False if found.low > SAME or found.high < -SAME else None


def all_are(decides: Callable[[Change], bool | None], pairs: Pairs) -> Rule:
    """Return a rule that holds if `decides` is True for every pair of a method and a baseline.

    One False refutes it; otherwise one None leaves it undecided.
    """

    def decide(runs: Runs) -> Found:
        asked = pairs(runs)
        changes = {pair.label: change(pair) for pair in asked}
        told = f"{asked[0].metric}, % worse: {listed(changes)}; the same is up to {100 * SAME:g}"
        lost = {label for label, each in changes.items() if each.low > 0}
        return all_so({k: decides(x) for k, x in changes.items()}, told, trained(asked[0]), lost)

    return decide


def all_so(
    verdicts: dict[str, bool | None], told: str, more: str, lost: Collection[str] = ()
) -> Found:
    """Combine verdicts by label: any False refutes, else any None leaves undecided.

    `told` becomes the finding's numbers, and `more` ends its reason. `lost` has the labels with a
    measured loss: one that refutes, or all of them, decide on insensitive tasks, too.
    """
    no = [label for label, verdict in verdicts.items() if verdict is False]
    if no:
        reason = f"not so: {', '.join(no)}; {more}"
        return Found(False, told, reason, any(label in lost for label in no))
    unclear = [label for label, verdict in verdicts.items() if verdict is None]
    reason = f"seeds scatter too much to tell: {', '.join(unclear)}; {more}"
    return Found(None if unclear else True, told, reason, all(label in lost for label in verdicts))


def listed(changes: dict[str, Change]) -> str:
    """Format changes in percent by label: `75 % sparse 0.15 (0.07 to 0.27), ...`."""
    return ", ".join(f"{label} {spoken(each)}" for label, each in changes.items())


def spoken(found: Change) -> str:
    """Format a change in percent with its interval, without unit: `0.15 (0.07 to 0.27)`."""
    mean, low, high = (100 * value for value in found)
    return f"{mean:.2g} ({low:.2g} to {high:.2g})"


def trained(pair: MethodPair) -> str:
    """Name the model, dataset and steps of a pair, and the final value of its baseline."""
    rows = pair.group.rows(pair.baseline)
    row, end = rows.iloc[0], ended(rows, pair.metric).mean()
    long = f", {row.conditions['steps']:g} steps" if row.conditions.get("steps") else ""
    return f"{row.model} on {row.dataset}{long}, {pair.baseline} at {end:.4g}"
