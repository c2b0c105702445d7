"""Intervals cover what they say, chances are as rare as they say; by simulation."""

from math import inf, isnan, nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from harness.reporting.analysis import statistics

TRIALS = 2000
CHANCE = st.floats(0, 1)


@pytest.mark.parametrize(
    ("pairs", "skewed", "least", "most"),
    [(n, False, 0.935, 0.965) for n in (3, 6, 12)] + [(n, True, 0.88, 0.96) for n in (3, 6, 12)],
)
def test_intervals_cover_the_true_mean(pairs, skewed, least, most):
    """Normal values, and log-normal ones of deviation 0.5, whose skewness is 1.75."""
    drawn = np.random.default_rng(7).standard_normal((TRIALS, pairs))
    truth = np.exp(0.5**2 / 2) if skewed else 0.0
    values = np.exp(0.5 * drawn) if skewed else drawn
    found = [statistics.interval(pd.Series(row)) for row in values]
    covered = np.mean([each.low <= truth <= each.high for each in found])
    assert least <= covered <= most


def test_an_interval_is_of_the_known_values():
    assert statistics.interval(pd.Series([3.0, nan]))[0] == 3
    assert isnan(statistics.interval(pd.Series([3.0, nan])).low)
    assert isnan(statistics.interval(pd.Series([], dtype=float)).mean)
    assert statistics.interval(pd.Series([1.0, inf])).mean == inf
    # Student's t of 2 degrees of freedom is 4.303; deviation 1 over the root of 3
    found = statistics.interval(pd.Series([1.0, 2.0, 3.0]))
    assert found == pytest.approx((2, 2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), rel=1e-4)


@pytest.mark.parametrize("pairs", [3, 6, 12])
@pytest.mark.parametrize("level", [0.05, 0.25])
def test_a_t_test_of_log_ratios_errs_as_often_as_its_level(pairs, level):
    drawn = np.random.default_rng(3).lognormal(0, 0.4, (2000, pairs))
    found = np.array([statistics.log_ratio_p(pd.Series(row)) for row in drawn])
    assert (found <= level).mean() == pytest.approx(level, abs=4 * (level / len(found)) ** 0.5)


def test_a_ratio_and_its_inverse_have_the_same_p():
    ratios = pd.Series([1.3, 1.1, 1.6, nan])
    assert statistics.log_ratio_p(ratios) == pytest.approx(statistics.log_ratio_p(1 / ratios))
    logs = np.log(ratios.dropna())
    t = logs.mean() / logs.std() * len(logs) ** 0.5
    assert statistics.log_ratio_p(ratios) == pytest.approx(2 * student.sf(t, len(logs) - 1))


@pytest.mark.parametrize("ratios", [[2.0], [2.0, 0.0], [2.0, inf], [nan]])
def test_a_ratio_without_logarithm_has_no_p(ratios):
    assert isnan(statistics.log_ratio_p(pd.Series(ratios)))


def test_six_pairs_can_stay_below_5_percent_among_ten_claims():
    p = statistics.log_ratio_p(pd.Series([1.9, 2.0, 2.1, 2.0, 1.95, 2.05]))
    assert statistics.holm([p] + [1.0] * 9)[0] < 0.05
    assert statistics.log_ratio_p(pd.Series([2.0] * 3)) == 0
    assert statistics.log_ratio_p(pd.Series([1.0] * 3)) == 1


@given(st.lists(CHANCE, max_size=20))
def test_holm_rejects_no_more_than_each_alone(p_values):
    adjusted = statistics.holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    assert [adjusted[place] for place in order] == sorted(adjusted)


def test_holm_of_known_values():
    found = statistics.holm([0.01, nan, 0.04, 0.03])
    assert found[0] == pytest.approx(0.03) and isnan(found[1])
    assert found[2:] == pytest.approx([0.06, 0.06])
