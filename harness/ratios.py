"""One method over another: ratios paired by seed, censored times as bounds."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from harness import metrics

REACHED = {"time_to_target_s": "reached", "convergence_s": "converged"}  # else a lower bound


class Ratio(NamedTuple):
    """Mean over seeds of a ratio, with its 95 % bootstrap interval (nan below two seeds).

    Where a time is censored the mean is a bound: `low`, the truth is at least this; `high`, at
    most; `unknown`, both are censored in some seed, or in different ones. A bound has no interval.
    """

    mean: float
    low: float
    high: float
    seeds: int  # in which both methods have the number
    bound: str = ""


def paired(table: pd.DataFrame, column: str, over: str, under: str) -> Ratio:
    """`column` of method `over` over that of `under`, seed by seed; of rows of one setting.

    A ratio with 0 below is infinite, 0 over 0 is left out like what is nan.
    """
    above, below = (_of(table, method) for method in (over, under))
    seeds = above.index.intersection(below.index)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (above[column].loc[seeds] / below[column].loc[seeds]).dropna()
    found = metrics.interval(values)
    sides = set()
    if column in REACHED:
        met = REACHED[column]
        sides |= {"low"} if not above[met].loc[values.index].all() else set()
        sides |= {"high"} if not below[met].loc[values.index].all() else set()
    bound = sides.pop() if len(sides) == 1 else "unknown" if sides else ""
    interval = (float("nan"), float("nan")) if bound else (found.low, found.high)
    return Ratio(found.mean, *interval, len(values), bound)


def _of(table: pd.DataFrame, method: str) -> pd.DataFrame:
    rows = table[table.method == method].set_index("seed")
    if rows.index.has_duplicates:
        seeds = sorted(set(rows.index[rows.index.duplicated()]))
        raise ValueError(f"{method} must have one run a seed, has several of seed {seeds}")
    return rows
