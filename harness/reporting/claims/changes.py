"""What compression does to a quality, seed by seed, and whether the scatter over seeds decides it.

A change is of what a run ended at over its baseline's of the same seed, positive where that is
worse. A claim is decided where the whole 95 % interval lies on one side of a margin;
else, and with fewer than `LEAST_PAIRS` pairs, runs do not decide it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from harness.records.metrics import lower_is_better
from harness.reporting.analysis import load, metrics
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims.base import Found, Group, NoSuchRuns, Runs
from harness.reporting.claims.guards import LEAST_PAIRS
from harness.reporting.claims.rules import Rule

SAME = 0.001  # of a loss or a BLEU: half of the least published as a loss of quality, 0.18 %
TRAIN_LOSS = "train loss"  # mean over workers and the last quarter of the steps
LAST = 0.25


class Change(NamedTuple):
    """Relative, positive: worse; mean over seeds with its 95 % interval."""

    mean: float
    low: float
    high: float


class MethodPair(NamedTuple):
    """A method, the baseline it is held against, and their metric."""

    label: str
    group: Group
    method: str
    baseline: str
    metric: str = "loss"


Pairs = Callable[[Runs], list[MethodPair]]


def ended(rows: pd.DataFrame, metric: str) -> pd.Series:
    """Final value of each run in `metrics.table`; the worst possible where it diverged."""
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
    """Relative change from baseline to method; `NoSuchRuns` below `LEAST_PAIRS` common pairs."""
    rows = pair.group.rows(pair.method, pair.baseline)
    rows = rows.assign(ended=ended(rows, pair.metric))
    pair.group.seen.columns.add("final")
    found = pair.group.paired(rows, "ended", pair.method, pair.baseline)
    what = f"{pair.metric} of {pair.method} and {pair.baseline} in {pair.group.experiment}"
    return over(found, what, 1 if lower_is_better(pair.metric) else -1)


def over(found: Ratio, what: str, sign: int = 1) -> Change:
    """A ratio as a change, of `what`; sign -1 where larger is better."""
    if found.seeds < LEAST_PAIRS:
        raise NoSuchRuns(f"needs {LEAST_PAIRS} pairs of seeds with {what}, has {found.seeds}")
    if math.isinf(found.mean):
        return Change(*[sign * found.mean] * 3)  # of which no interval is known
    low, high = sorted((sign * (found.low - 1), sign * (found.high - 1)))
    return Change(sign * (found.mean - 1), low, high)


def not_worse(found: Change) -> bool | None:
    """True if it is not worse by more than `SAME`; None: undecided."""
    return True if found.high <= SAME else False if found.low > SAME else None


def worse(found: Change) -> bool | None:
    """True if it is worse by more than `SAME`; None: undecided."""
    decided = not_worse(found)
    return None if decided is None else not decided


def better(found: Change) -> bool | None:
    """True if it is better, by however little; None: undecided."""
    return True if found.high < 0 else False if found.low >= 0 else None


def not_better(found: Change) -> bool | None:
    """True if it is not better, by however little; None: undecided."""
    decided = better(found)
    return None if decided is None else not decided


def same(found: Change) -> bool | None:
    """Neither better nor worse by more than `SAME`."""
    if -SAME <= found.low and found.high <= SAME:
        return True
    return False if found.low > SAME or found.high < -SAME else None


def all_are(decides: Callable[[Change], bool | None], pairs: Pairs) -> Rule:
    """Rule that every pair is so; one that is not decides, else all have to be decided."""

    def decide(runs: Runs) -> Found:
        asked = pairs(runs)
        changes = {pair.label: change(pair) for pair in asked}
        told = f"{asked[0].metric}, % worse: {listed(changes)}; the same is up to {100 * SAME:g}"
        return all_so({k: decides(x) for k, x in changes.items()}, told, trained(asked[0]))

    return decide


def all_so(verdicts: dict[str, bool | None], told: str, more: str) -> Found:
    """Combine the verdicts of several runs, by label, into one finding."""
    no = [label for label, verdict in verdicts.items() if verdict is False]
    if no:
        return Found(False, told, f"not so: {', '.join(no)}; {more}")
    unclear = [label for label, verdict in verdicts.items() if verdict is None]
    reason = f"seeds scatter too much to tell: {', '.join(unclear)}; {more}"
    return Found(None if unclear else True, told, reason)


def listed(changes: dict[str, Change]) -> str:
    """`75 % sparse 0.15 (0.07 to 0.27)`, in percent."""
    return ", ".join(f"{label} {spoken(each)}" for label, each in changes.items())


def spoken(found: Change) -> str:
    """Format a change in percent, with its interval and without sign."""
    mean, low, high = (100 * value for value in found)
    return f"{mean:.2g} ({low:.2g} to {high:.2g})"


def trained(pair: MethodPair) -> str:
    """Say what was trained, for how long, and where its baseline ended."""
    rows = pair.group.rows(pair.baseline)
    row, end = rows.iloc[0], ended(rows, pair.metric).mean()
    long = f", {row.conditions['steps']:g} steps" if row.conditions.get("steps") else ""
    return f"{row.model} on {row.dataset}{long}, {pair.baseline} at {end:.4g}"
