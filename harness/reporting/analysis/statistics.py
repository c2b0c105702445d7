"""Statistics of paired runs: intervals of a mean, sign-flip p values and Holm's adjustment.

A pair is two methods' results with one seed and one network seed. Intervals are Student's t: with
only three values they cover 95 % of true means of normal scatter, a percentile bootstrap 75 %. Of
log-normal scatter with deviation 0.5 they cover 91 to 93 %.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

COVERS = 0.95
EXACT_PAIRS = 16  # up to this many pairs all 2^n signs are tried
DRAWS = 1 << 16  # random sign vectors for more pairs
BLOCK = 1 << 12  # rows of signs at a time
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


def sign_flip_p(differences: pd.Series) -> float:
    """Return the two-sided p of paired `differences` under random signs; NaN if none or infinite.

    Exact up to `EXACT_PAIRS` differences, from seeded draws above. NaN values are dropped.
    """
    known = differences.dropna().to_numpy(float)
    if not len(known) or not np.isfinite(known).all():
        return NAN
    seen = abs(known.sum()) * (1 - 1e-12)  # rounding must not separate equal sums
    tried = as_far = 0
    for signs in _signs(len(known)):
        tried += len(signs)
        as_far += int((np.abs(signs @ known) >= seen).sum())
    exact = len(known) <= EXACT_PAIRS
    return as_far / tried if exact else (as_far + 1) / (tried + 1)


def _signs(pairs: int) -> Iterator[np.ndarray]:
    """Yield blocks [rows, pairs] of +1 and -1: all combinations, or `DRAWS` random ones."""
    random = np.random.default_rng(0)
    total = min(1 << pairs, DRAWS) if pairs <= EXACT_PAIRS else DRAWS
    for start, end in pairwise([*range(0, total, BLOCK), total]):
        if pairs <= EXACT_PAIRS:
            bits = np.arange(start, end)[:, None] >> np.arange(pairs) & 1
        else:
            bits = random.integers(0, 2, (end - start, pairs))
        yield 2 * bits - 1


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for multiple testing (Holm, 1979); NaN stays and is not counted."""
    adjusted, most = list(p_values), 0.0
    known = sorted((p, place) for place, p in enumerate(p_values) if p == p)
    for rank, (p, place) in enumerate(known):
        most = max(most, min(1.0, (len(known) - rank) * p))
        adjusted[place] = most
    return adjusted
