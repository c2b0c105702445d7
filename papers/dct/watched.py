"""Summarise a watch's records of several runs: thresholds over steps, and activations.

Pure functions of watched.csv and histograms.csv. Dropping only zeros counts as sending all.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from harness.reporting.analysis.statistics import Interval, interval

WITHOUT, WITH = "all are sent", "only these are sent"
MOST_POINTS = 150  # most points of a line, evenly spaced


class Saw(NamedTuple):
    """A table of a watch, with the method, seed and densities of its run."""

    method: str
    seed: int
    kept: float  # density of activations that cross cuts; 1 if all do
    table: pd.DataFrame
    sent: float = 1.0  # density of gradients asked for; 1 if it was not one number


class Fit(NamedTuple):
    """Distribution with a histogram's mean and deviation, and its distance from the histogram."""

    model: str  # laplace | normal
    center: float
    scale: float  # laplace: sqrt(variance / 2); normal: the deviation
    distance: float  # total variation between it and the histogram, in [0, 1]


def together(seen: Iterable[Saw]) -> pd.DataFrame:
    """Return the rows of all tables, with the columns method, seed, kept and sent of their runs."""
    tables = [
        saw.table.assign(method=saw.method, seed=saw.seed, kept=saw.kept, sent=saw.sent)
        for saw in seen
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def is_cut(rows: pd.DataFrame) -> pd.Series:
    """Return a mask of the rows about activations, not about a parameter's gradient."""
    return rows.of.str.fullmatch(r"cut\d+")


def of_gradients(rows: pd.DataFrame, whole: str) -> pd.DataFrame:
    """Return the gradient rows at the density in use, from one method for each density.

    If no run compresses gradients, return all densities of method `whole`.
    """
    rows = rows[~is_cut(rows)]
    used = rows[np.isclose(rows.density, rows.sent) & (rows.sent < 1)]
    if used.empty:
        return rows[rows.method == whole]
    return used[used.method == used.groupby("density").method.transform("min")]


def with_and_without(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `lines` of activations for two kinds of runs, with and without thresholding.

    With thresholding, only rows at the density that the run keeps count. Without it, a run sends
    all activations.
    """
    rows = rows[is_cut(rows)]
    used = rows[np.isclose(rows.density, rows.kept) & (rows.kept < 1)]
    return _two_kinds({WITHOUT: rows[rows.kept == 1], WITH: used})


def _two_kinds(kinds: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([lines(rows).assign(kind=kind) for kind, rows in kinds.items()])


def lines(rows: pd.DataFrame) -> pd.DataFrame:
    """Return of, density, step, value, low, high: the mean threshold over ranks and seeds."""
    groups, found = ["of", "density", "step"], []
    numbers = ["density", "step", "value", *Interval._fields[1:]]
    of_seeds = rows.groupby([*groups, "seed"]).threshold.mean().reset_index()
    for key, group in _thinned(of_seeds).groupby(groups):
        found.append([*key, *interval(group.threshold)])
    return pd.DataFrame(found, columns=["of", *numbers]).astype(dict.fromkeys(numbers, float))


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of at most `MOST_POINTS` steps, evenly spaced."""
    steps = np.sort(rows.step.unique())
    if len(steps) <= MOST_POINTS:
        return rows
    places = np.linspace(0, len(steps) - 1, MOST_POINTS).round().astype(int)
    return rows[rows.step.isin(steps[places])]


def fits(bins: pd.DataFrame) -> list[Fit]:
    """Fit a Laplace and a normal distribution to one histogram's `bins` by their moments."""
    center, deviation = float(bins["mean"].iloc[0]), float(bins.deviation.iloc[0])
    entries = bins.entries.to_numpy(float)
    found = []
    for model, scale in (("laplace", deviation / math.sqrt(2)), ("normal", deviation)):
        expected = _shares(bins, model, center, scale)
        apart = np.abs(entries / entries.sum() - expected).sum() + 1 - expected.sum()
        found.append(Fit(model, center, scale, float(apart / 2)))
    return found


def shares(bins: pd.DataFrame) -> pd.DataFrame:
    """Return one histogram's `bins` with columns share (measured), laplace and normal (fitted)."""
    of_fits = {fit.model: _shares(bins, *fit[:3]) for fit in fits(bins)}
    return bins.assign(share=bins.entries / bins.entries.sum(), **of_fits)


def _shares(bins: pd.DataFrame, model: str, center: float, scale: float) -> np.ndarray:
    edges = [*bins.low, bins.high.iloc[-1]]
    return np.diff([below(model, edge, center, scale) for edge in edges])


def below(model: str, x: float, center: float, scale: float) -> float:
    """Return P(X < x) of a `laplace` or `normal` distribution; scale 0 puts all at the center."""
    if scale == 0:
        return float(x > center)
    z = (x - center) / scale
    if model == "laplace":
        return math.exp(z) / 2 if z < 0 else 1 - math.exp(-z) / 2
    return (1 + math.erf(z / math.sqrt(2))) / 2


def distances(bins: pd.DataFrame) -> pd.DataFrame:
    """Return the mean distance of each fit to one method's activations, with its interval.

    `bins` has the histograms of all seeds and ranks of one method. The result has the columns of,
    step, model, mean, low and high. The interval is over seeds. The distance is `Fit.distance`, for
    a Laplace and a normal fit.
    """
    found = []
    for (of, step), group in bins.groupby(["of", "step"]):
        alone = [fits(each) for _, each in group.groupby(["seed", "rank"])]
        for of_model in zip(*alone, strict=True):
            over_seeds = interval(pd.Series([fit.distance for fit in of_model]))
            found.append([of, step, of_model[0].model, *over_seeds])
    return pd.DataFrame(found, columns=["of", "step", "model", *Interval._fields])
