"""What pairs of runs say: an interval of their mean, the chance of it, and how many are needed.

A pair is what two methods did with one seed and one network seed. Intervals are Student's t: with
three values already they cover 95 % of true means of normal scatter, a percentile bootstrap 75 %;
of log-normal scatter of deviation 0.5 they cover 91 to 93 %.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

COVERS = 0.95
EXACT_PAIRS = 16  # up to so many all 2^n signs are tried
DRAWS = 1 << 16  # of signs, above
BLOCK = 1 << 12  # sums at a time
NAN = float("nan")


class Interval(NamedTuple):
    """Mean of independent values with its 95 % t interval, which is nan below two values."""

    mean: float
    low: float
    high: float


def interval(values: pd.Series, covers: float = COVERS) -> Interval:
    """Return mean and interval of known values; with an infinite one the mean, and no interval."""
    known = values.dropna().to_numpy(float)
    mean = float(known.mean()) if len(known) else NAN
    if len(known) < 2 or not np.isfinite(known).all():
        return Interval(mean, NAN, NAN)
    half = half_width(float(known.std(ddof=1)), len(known), covers)
    return Interval(mean, mean - half, mean + half)


def half_width(scatter: float, pairs: int, covers: float = COVERS) -> float:
    """Half of the interval of a mean of `pairs` >= 2 values of that standard deviation."""
    return float(stdtrit(pairs - 1, (1 + covers) / 2)) * scatter / pairs**0.5


def sign_flip_p(differences: pd.Series) -> float:
    """Two-sided p of paired `differences` if each were as likely to have the other sign.

    Exact up to `EXACT_PAIRS` known ones, by seeded draws above; nan of none.
    """
    known = differences.dropna().to_numpy(float)
    if not len(known) or not np.isfinite(known).all():
        return NAN
    seen = abs(known.sum()) * (1 - 1e-12)  # rounding must not part equal sums
    tried = as_far = 0
    for signs in _signs(len(known)):
        tried += len(signs)
        as_far += int((np.abs(signs @ known) >= seen).sum())
    exact = len(known) <= EXACT_PAIRS
    return as_far / tried if exact else (as_far + 1) / (tried + 1)


def _signs(pairs: int) -> Iterator[np.ndarray]:
    """Rows of +1 and -1 in blocks, each [rows, pairs]: all there are, or `DRAWS` of them."""
    random = np.random.default_rng(0)
    total = min(1 << pairs, DRAWS) if pairs <= EXACT_PAIRS else DRAWS
    for start, end in pairwise([*range(0, total, BLOCK), total]):
        if pairs <= EXACT_PAIRS:
            bits = np.arange(start, end)[:, None] >> np.arange(pairs) & 1
        else:
            bits = random.integers(0, 2, (end - start, pairs))
        yield 2 * bits - 1


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p adjusted for the others (Holm, 1979), never below itself; nan stays, uncounted."""
    adjusted, most = list(p_values), 0.0
    known = sorted((p, place) for place, p in enumerate(p_values) if p == p)
    for rank, (p, place) in enumerate(known):
        most = max(most, min(1.0, (len(known) - rank) * p))
        adjusted[place] = most
    return adjusted
