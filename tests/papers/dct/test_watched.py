"""What a watch saw, of several runs: by hand, with known answers."""

import math

import numpy as np
import pandas as pd
import pytest

from harness.records.run_directory import Bin, Watched
from papers.dct import watched
from papers.dct.watched import MOST_POINTS, WITH, WITHOUT, Saw
from tests.analysis.t_interval import of_two

LAPLACE_AT = math.log(2)  # scales beyond the center, with a quarter above


def table(*rows: tuple) -> pd.DataFrame:
    return pd.DataFrame([Watched(*row) for row in rows], columns=list(Watched._fields))


def histogram(model: str, center: float, scale: float, deviation: float) -> pd.DataFrame:
    """A million entries in 200 bins, as many in each as a distribution says."""
    edges = np.linspace(center - 12 * deviation, center + 12 * deviation, 201)
    below = [watched.below(model, edge, center, scale) for edge in edges]
    entries = np.round(1e6 * np.diff(below)).astype(int)
    bins = [
        Bin(5, 0, "cut0", low, high, count, center, deviation)
        for low, high, count in zip(edges, edges[1:], entries, strict=False)
    ]
    return pd.DataFrame(bins)


def test_a_line_is_the_mean_over_ranks_and_then_over_seeds() -> None:
    seen = [Saw("m", 0, 1.0, table((0, 0, "w", 0.1, 1.0), (0, 1, "w", 0.1, 3.0))),
            Saw("m", 1, 1.0, table((0, 0, "w", 0.1, 6.0)))]  # fmt: skip
    rows = watched.together(seen)
    assert set(rows.seed) == {0, 1} and (rows.kept == 1).all()
    (line,) = watched.lines(rows).itertuples(index=False)
    assert (line.of, line.density, line.step, line.value) == ("w", 0.1, 0, 4.0)
    assert (line.low, line.high) == pytest.approx(of_two(2, 6))
    alone = watched.lines(rows[rows.seed == 1])
    assert alone.value.tolist() == [6.0] and alone.low.isna().all()


def test_of_many_steps_a_line_has_some_from_the_first_to_the_last() -> None:
    rows = table(*[(5 * step, 0, "w", 0.1, float(step)) for step in range(4000)])
    line = watched.lines(watched.together([Saw("m", 0, 1.0, rows)]))
    assert len(line) == MOST_POINTS and (line.step.iloc[0], line.step.iloc[-1]) == (0, 19995)
    assert (line.value * 5 == line.step).all() and line.step.diff().dropna().between(130, 140).all()


def test_a_density_is_with_dct_mp_only_where_just_it_is_kept() -> None:
    both = table((0, 0, "cut0", 0.1, 2.0), (0, 0, "cut0", 0.25, 1.0), (0, 0, "w", 0.1, 9.0))
    seen = [Saw("whole", 0, 1.0, both)]
    seen += [Saw("dct_mp", 0, 0.1, both.assign(threshold=both.threshold / 2))]
    seen += [Saw("sketch", 0, math.nan, both.assign(threshold=7.0))]
    found = watched.with_and_without(watched.together(seen))
    rows = sorted(zip(found.kind, found.of, found.density, found.value, strict=True))
    assert rows == [
        (WITHOUT, "cut0", 0.1, 2.0), (WITHOUT, "cut0", 0.25, 1.0), (WITH, "cut0", 0.1, 1.0),
    ]  # fmt: skip


def test_a_gradients_threshold_is_of_the_density_that_is_sent() -> None:
    """Where runs send less than all; else of the one that is asked for, at all densities."""
    both = table((0, 0, "w", 0.1, 2.0), (0, 0, "w", 0.25, 1.0), (0, 0, "cut0", 0.1, 9.0))
    whole, other = Saw("whole", 0, 1.0, both), Saw("other", 0, 1.0, both)
    sent = [Saw(f"dct_dp_{d}", 0, 1.0, both.assign(threshold=10 * d), d) for d in (0.1, 0.25)]
    again = Saw("dct_dp_0.1_lifespan=1", 0, 1.0, both.assign(threshold=7.0), 0.1)
    found = watched.of_gradients(watched.together([whole, *sent, again]), "whole")
    assert sorted(zip(found.density, found.threshold, strict=True)) == [(0.1, 1.0), (0.25, 2.5)]
    found = watched.of_gradients(watched.together([other, whole]), "whole")
    assert found.method.tolist() == ["whole"] * 2 and found.threshold.tolist() == [2.0, 1.0]


def test_shares_below_are_those_of_the_distributions() -> None:
    assert watched.below("laplace", 3.0, 3.0, 2.0) == watched.below("normal", 3.0, 3.0, 2.0) == 0.5
    assert watched.below("laplace", 3 + 2 * LAPLACE_AT, 3.0, 2.0) == pytest.approx(0.75)
    assert watched.below("laplace", 3 - 2 * LAPLACE_AT, 3.0, 2.0) == pytest.approx(0.25)
    assert watched.below("normal", 1.959964, 0.0, 1.0) == pytest.approx(0.975)
    assert [watched.below("laplace", x, 0.0, 0.0) for x in (-1, 1)] == [0, 1]


@pytest.mark.parametrize("model", ["laplace", "normal"])
def test_a_histogram_is_at_no_distance_from_what_it_was_made_of(model: str) -> None:
    deviation = 2.0
    scale = deviation / math.sqrt(2) if model == "laplace" else deviation
    laplace, normal = watched.fits(histogram(model, 0.3, scale, deviation))
    assert (laplace.model, normal.model) == ("laplace", "normal")
    assert laplace.scale == pytest.approx(math.sqrt(2)) and normal.scale == 2
    own, other = (laplace, normal) if model == "laplace" else (normal, laplace)
    assert own.distance < 1e-3
    # Between the two, of the same mean and variance, by integration.
    x = np.linspace(-40, 40, 400_001)
    density = np.exp(-np.abs(x) / math.sqrt(2)) / (2 * math.sqrt(2))
    apart = np.abs(density - np.exp(-(x**2) / 8) / math.sqrt(8 * math.pi)).sum() * (x[1] - x[0]) / 2
    assert other.distance == pytest.approx(apart, abs=0.01)


def test_a_histogram_elsewhere_is_at_distance_one() -> None:
    bins = histogram("normal", 0.0, 1.0, 1.0).assign(mean=1000.0)
    assert [fit.distance for fit in watched.fits(bins)] == pytest.approx([1, 1], abs=1e-6)


def test_shares_add_up_and_distances_are_over_seeds() -> None:
    bins = histogram("laplace", 0.0, 1.0, math.sqrt(2))
    shares = watched.shares(bins)
    assert [shares[name].sum() for name in ("share", "laplace", "normal")] == pytest.approx([1] * 3)
    other = bins.assign(mean=1000.0)
    seeds = pd.concat([bins.assign(seed=0), other.assign(seed=1)])
    found = watched.distances(seeds).set_index("model")
    assert found.loc["laplace", "mean"] == pytest.approx(0.5, abs=1e-3)
    assert found.loc["laplace", "low"] == pytest.approx(of_two(0, 1)[0], abs=0.02)
    assert set(found.of) == {"cut0"} and set(found.step) == {5}
