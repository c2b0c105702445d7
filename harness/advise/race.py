"""Rules of the race: which methods continue after each pair of runs, and how sure a lead is.

Racing (Maron and Moore, 1994; F-Race: Birattari et al., 2002) with t-intervals of paired ratios, as
in reports. All methods run on the same seeds. A method is dropped as soon as its interval lies
behind the leader's. Hyperband's successive halving drops a fixed share instead, but half of the
methods may be equally good.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from harness.reporting.analysis import statistics

DROPPED_AT = 0.99  # confidence: a race looks several times at many methods, an answer once
TESTED_PAIRS = 3  # fewer have no useful interval
FAR_BEHIND = 2.0  # times the leader's time, before there is one; pairs scatter by tenths
SPARED = 0.2  # share of dense's steps that no compression is believed to spare

Times = Sequence[float]  # s to the target, one a pair; inf where it was not reached


class Lead(NamedTuple):
    """Ratio of one method's times to another's, pair by pair: mean and interval.

    Below two pairs the interval is nan. A method that missed the target has infinite time.
    """

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def sure(self) -> bool:
        """True if the other method is sooner by more than chance."""
        return self.low > 1 or self.mean == math.inf


def lead(behind: Times, ahead: Times, confidence: float = statistics.COVERS) -> Lead:
    """Return times of `behind` over those of `ahead`, on the pairs that both have."""
    pairs = min(len(behind), len(ahead))
    if not all(map(math.isfinite, [*behind[:pairs], *ahead[:pairs]])):
        ends = math.inf if all(map(math.isfinite, ahead[:pairs])) else math.nan
        return Lead(ends, math.nan, math.nan, pairs)
    values = pd.Series([one / other for one, other in zip(behind, ahead, strict=False)])
    return Lead(*statistics.interval(values, confidence), pairs)


def leader(times: Mapping[str, Times]) -> str | None:
    """Return the method with the lowest mean time among those that reached the target each time."""
    whole = {name: sum(each) for name, each in times.items() if reached(each)}
    return min(whole, key=lambda name: (whole[name], name), default=None)


def reached(times: Times) -> bool:
    return bool(times) and all(map(math.isfinite, times))


def dropped(times: Mapping[str, Times]) -> dict[str, str]:
    """Return the methods to drop after the pairs that all have run, each with a reason."""
    first = leader(times)
    if first is None:
        return {}
    reasons = {name: _behind(each, first, times[first]) for name, each in times.items()}
    return {name: why for name, why in reasons.items() if why and name != first}


def _behind(own: Times, first: str, best: Times) -> str:
    """Say why a method cannot become first any more. Empty while it can."""
    if not reached(own):
        return "it does not reach the target"
    found = lead(own, best, DROPPED_AT)
    if found.pairs < TESTED_PAIRS:
        least = min(each / other for each, other in zip(own, best, strict=True))
        return f"at least {least:.2f} times {first}'s time" if least >= FAR_BEHIND else ""
    if not found.sure:
        return ""
    ends = f"{found.low:.2f} to {found.high:.2f}"
    return f"{found.mean:.2f} times {first}'s time ({ends}, {found.pairs} pairs)"


def bound_s(step_s: float, dense_step_s: float, dense_s: float) -> float:
    """Return the least possible time to the target, from planned seconds of a step.

    `dense_s` is dense's time to the target. Compression may save up to SPARED of its steps.
    """
    return dense_s * (1 - SPARED) * step_s / dense_step_s
