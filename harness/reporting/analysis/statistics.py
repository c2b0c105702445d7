"""Statistics of paired runs: intervals of a mean, t tests of log ratios and Holm's adjustment.

A pair is two methods' results with one seed and one network seed. Intervals are Student's t: with
only three values they cover 95 % of true means of normal scatter, a percentile bootstrap 75 %. Of
log-normal scatter with deviation 0.5 they cover 91 to 93 %.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

COVERS = 0.95
NAN = float("nan")


class Interval(NamedTuple):
    """Mean of independent values with its 95 % t interval, which is NaN below two values."""

    mean: float
    low: float
    high: float


def interval(values: pd.Series, covers: float = COVERS) -> Interval:
    """Return the mean and t interval (of level `covers`) of the values that are not NaN.

    The interval is NaN below two values or with an infinite one.
    """
    known = values.dropna().to_numpy(float)
    mean = float(known.mean()) if len(known) else NAN
    if len(known) < 2 or not np.isfinite(known).all():
        return Interval(mean, NAN, NAN)
    half = half_width(float(known.std(ddof=1)), len(known), covers)
    return Interval(mean, mean - half, mean + half)


def half_width(scatter: float, pairs: int, covers: float = COVERS) -> float:
    """Return half the t interval, at level `covers`, of a mean of `pairs` >= 2 values."""
    return float(stdtrit(pairs - 1, (1 + covers) / 2)) * scatter / pairs**0.5


def log_ratio_p(ratios: pd.Series) -> float:
    """Return the two-sided p of Student's t test that the logarithms of `ratios` have mean 0.

    NaN values are dropped. The p is NaN below two ratios, or if one is not positive and finite.
    """
    known = ratios.dropna().to_numpy(float)
    if len(known) < 2 or not (np.isfinite(known) & (known > 0)).all():
        return NAN
    logs = np.log(known)
    mean, error = abs(float(logs.mean())), float(logs.std(ddof=1)) / len(logs) ** 0.5
    if not error:
        return 0.0 if mean else 1.0
    return float(2 * stdtr(len(logs) - 1, -mean / error))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for multiple testing (Holm, 1979); NaN stays and is not counted."""
    adjusted, most = list(p_values), 0.0
    known = sorted((p, place) for place, p in enumerate(p_values) if p == p)
    for rank, (p, place) in enumerate(known):
        most = max(most, min(1.0, (len(known) - rank) * p))
        adjusted[place] = most
    return adjusted
