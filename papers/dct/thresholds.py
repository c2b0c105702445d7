"""Decide DCT's claims on thresholds and activations: figures 2, 5 and 6.

They use watched.csv and histograms.csv; a run's first and last tenth are its start and end.
"""

import numpy as np
import pandas as pd

from harness.reporting.analysis import load, ratios, statistics
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims import changes, rules
from harness.reporting.claims.base import (
    Found,
    Group,
    NoSuchRuns,
    NotDecidable,
    Runs,
    above,
    all_of,
    below,
    listed,
    spoken,
)
from papers.dct import watched

TENTH = 0.1  # of a run
GROWS = 1.2  # least ratio of a sparsity's threshold to that of the one before
DEVIATION = 0.26  # published: largest deviation from the running mean at 95 %
DRIFTS = 1 / 1.2  # largest ratio of end to start
FEWEST = 50  # watched steps that a running mean needs
GRADIENT, CUTS, LAPLACE = "dct_fig2", "dct_fig5", "dct_table6"
PUSHED = "dct_dp_{0:g}_lifespan=1_whole=embedding.weight"
OF_GRADIENT = (0.5, 0.25, 0.1, 0.05, 0.02)  # densities of figure 2
WITHOUT = "dct_mp_1"  # everything but zeros crosses the cuts
DENSITIES = (0.25, 0.1, 0.05)
DRIFTING = "dct_mp_laplace_0.25"


def sparse(density: float) -> str:
    """Format a density as the paper's sparsity, such as `95 %`."""
    return f"{100 * (1 - density):g} %"


def grows_with_sparsity(runs: Runs) -> Found:
    """Decide whether DCT-DP's mean threshold grows by `GROWS` from each sparsity to the next."""
    means = pd.DataFrame(
        {d: {pair: table.threshold.mean() for pair, table in _of_gradient(runs, d).items()}
         for d in OF_GRADIENT}
    ).dropna()  # fmt: skip
    told = listed({sparse(density): means[density].mean() for density in OF_GRADIENT})
    least = Group.spread((means / means.shift(axis=1)).min(axis=1))
    reason = f"{spoken(least)} times from one to the next, at least"
    return Found(above(least, GROWS), f"{told}; growing is {GROWS:g} times", reason)


def deviation(runs: Runs) -> Ratio:
    """Return by how many percent DCT-DP's threshold at 95 % is off its running mean at most.

    The mean is over a tenth of a run. Raise `NotDecidable` below `FEWEST` watched steps.
    """
    tables = _of_gradient(runs, 0.05).values()
    seen = min(table.step.nunique() for table in tables)
    if seen < FEWEST:
        raise NotDecidable(f"needs {FEWEST} watched steps of {GRADIENT}, has {seen}")
    return Group.spread(100 * pd.Series([_off_running_mean(rows) for rows in tables]))


def varies_little(runs: Runs) -> Found:
    """Decide whether `deviation` is within `rules.FACTOR` of the published `DEVIATION`."""
    found, limit = deviation(runs), 100 * rules.FACTOR * DEVIATION
    told = f"{spoken(found)} % at most after the start; little is up to {limit:g} %"
    return Found(below(found, limit), told, "a batch here is one of few of the model's training")


def _of_gradient(runs: Runs, density: float) -> dict[tuple[int, ...], pd.DataFrame]:
    """Return watched rows by seeds of runs that send `density`; NoSuchRuns without watched.csv."""
    method = PUSHED.format(density)
    rows = runs.of(GRADIENT).rows(method)
    pairs = rows[load.PAIR].itertuples(index=False, name=None)
    tables = dict(zip(pairs, map(load.watched, rows.path), strict=True))
    if any(table.empty for table in tables.values()):
        raise NoSuchRuns(f"no watched.csv of {method} in {GRADIENT}")
    return {pair: table[np.isclose(table.density, density)] for pair, table in tables.items()}


def _off_running_mean(rows: pd.DataFrame) -> float:
    threshold = rows.threshold
    window = round(TENTH * len(threshold))
    off = threshold / threshold.rolling(window).mean() - 1
    return float(off.iloc[window:].abs().max())


def falls_faster(runs: Runs) -> Found:
    """Decide whether thresholds fall faster over a run if a cut uses them than if it sends all.

    The fall is the threshold's end over its start. Skip a density whose unused threshold ends at 0.
    Raise `NotDecidable` if none is left.
    """
    group, found = runs.of(CUTS), {}
    for density in DENSITIES:
        method = f"dct_mp_{density:g}"
        rows = group.rows(method, WITHOUT)
        ends = [_ends(_at_cuts(path, density)) for path in rows.path]
        kept = pd.Series([end / start for start, end in ends], rows.index)
        if (kept[rows.method == WITHOUT] == 0).all():
            continue
        ratio = ratios.paired(rows.assign(kept=kept), "kept", method, WITHOUT)
        what = f"watched.csv of {method} and {WITHOUT} in {CUTS}"
        found[sparse(density)] = changes.over(ratio, what)
    if not found:
        raise NotDecidable("every threshold ends at 0: more activations than that are 0")
    told = f"of what is left at the end, % more than without: {changes.listed(found)}"
    verdicts = {label: changes.better(each) for label, each in found.items()}
    return changes.all_so(verdicts, told, "from the first tenth of a run to its last")


def _at_cuts(path: str, density: float) -> pd.Series:
    """Return a run's threshold at `density` by step, mean over cuts."""
    rows = load.watched(path)
    rows = rows[watched.is_cut(rows) & np.isclose(rows.density, density)]
    return rows.groupby("step").threshold.mean()


def _ends(values: pd.Series) -> tuple[float, float]:
    """Return the means of the first and last tenth; nan if `values` is empty."""
    tenth = max(1, round(TENTH * len(values)))
    return float(values.iloc[:tenth].mean()), float(values.iloc[-tenth:].mean())


def fits_better(runs: Runs) -> Found:
    """Decide whether a Laplace fit is nearer to all activations than a Gaussian fit.

    The distance is the total variation at the last step with a histogram (paper: 10,000). It is a
    mean over cuts. Raise NoSuchRuns if a run has no histograms.csv.
    """
    group = runs.of(CUTS)
    bins = [load.histograms(path) for path in group.rows(WITHOUT).path]
    if any(table.empty for table in bins):
        raise NoSuchRuns(f"no histograms.csv of {WITHOUT} in {CUTS}")
    last = max(table.step.max() for table in bins)
    laplace, normal = (
        pd.Series([_distance(table[table.step == last], model) for table in bins])
        for model in ("laplace", "normal")
    )
    of_seeds = statistics.interval(laplace / normal)
    found = changes.over(Ratio(*of_seeds, len(bins)), f"a histogram of {WITHOUT} in {CUTS}")
    far = {"Laplace": laplace.mean(), "Gaussian": normal.mean()}
    told = f"step {last}: {listed(far)}; Laplace % further {changes.spoken(found)}"
    return changes.all_so({"Laplace": changes.better(found)}, told, "behind a rectifier")


def _distance(bins: pd.DataFrame, model: str) -> float:
    """Return the distance of a run's activations from a fit of `model`, mean over cuts."""
    fits = [fit for _, rows in bins.groupby(["rank", "of"]) for fit in watched.fits(rows)]
    return float(np.mean([fit.distance for fit in fits if fit.model == model]))


def achieved_density(runs: Runs) -> tuple[pd.Series, pd.Series]:
    """Return for each run the percent of activations above the 25 % threshold, at start and end.

    The threshold is from a Laplace fit. Raise NoSuchRuns if a run did not record it.
    """
    steps = runs.of(LAPLACE, parallel__stages=2).steps(DRIFTING)[DRIFTING]
    shares = [each.groupby("step").achieved_activation_density.mean() for each in steps]
    ends = 100 * pd.DataFrame([_ends(each) for each in shares], columns=["start", "end"])
    if not np.isfinite(ends).all(axis=None):
        raise NoSuchRuns(f"no achieved_activation_density of {DRIFTING} in {LAPLACE}")
    return ends.start, ends.end


def occupancy_drifts(runs: Runs) -> Found:
    """Decide whether the share over the threshold falls to `DRIFTS` of its start, below 25 %."""
    start, end = achieved_density(runs)
    told = f"{spoken(Group.spread(start))} % at the start, {spoken(Group.spread(end))} % at the end"
    reason = f"drifting is by {1 / DRIFTS:g} times at least, below 25 %"
    drifts = below(Group.spread(end / start), DRIFTS), below(Group.spread(end), 25)
    return Found(all_of(drifts), told, reason)
