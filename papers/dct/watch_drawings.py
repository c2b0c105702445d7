"""Draw a watch's records: thresholds of gradients and activations, and their histograms."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.config.parts import keeps_largest
from harness.reporting.analysis import load
from harness.reporting.analysis.comparison import Comparison
from harness.reporting.figures.theme import Drawing
from papers.dct import plots, watched
from papers.dct.watched import Saw

MEANS = "Means over seeds with 95 % intervals shaded"


def of_comparison(comparison: Comparison) -> dict[str, Drawing]:
    """Return the drawings for which runs have records, by file name."""
    rows, bins = _all(comparison, load.watched), _all(comparison, load.histograms)
    found: dict[str, Drawing] = {}
    if len(rows):
        found |= _thresholds(rows, comparison.title)
    if len(bins):
        found["activations"] = _histograms(bins, comparison.title)
    return found


def _thresholds(rows: pd.DataFrame, title: str) -> dict[str, Drawing]:
    cuts = watched.is_cut(rows)
    one = _whole(rows)
    found: dict[str, Drawing] = {}
    if not cuts.all():
        of_gradients = watched.of_gradients(rows, one)
        methods = " and ".join(sorted(set(of_gradients.method)))
        found["thresholds_gradient"] = Drawing(
            "Magnitude that a share of a layer's gradient and residual reaches, as they are "
            f"compressed, with {methods}. {MEANS}.",
            lambda: plots.thresholds(watched.lines(of_gradients), "threshold", title),
        )
    if not cuts.any():
        return found
    return found | {
        "thresholds_activations": Drawing(
            "Magnitude that a share of a sample's activations at a cut reaches, mean of a batch, "
            f"where just these cross the cut and where all do. {MEANS}.",
            lambda: plots.thresholds(
                watched.with_and_without(rows), "mean threshold\nof a row", title
            ),
        )
    }


def _histograms(bins: pd.DataFrame, title: str) -> Drawing:
    """Draw histograms of one run, uncompressed if there is one, with the fits of all seeds."""
    one = _whole(bins)
    of_one = bins[bins.method == one]
    seed = of_one.seed.min()
    first = of_one[(of_one.seed == seed) & (of_one["rank"] == of_one["rank"].min())]

    def draw() -> Any:
        each = [watched.shares(group) for _, group in first.groupby(["of", "step"])]
        told = f"{title}\n{one}, seed {seed}"
        return plots.activations(pd.concat(each), watched.distances(of_one), told)

    return Drawing(
        f"Activations before each cut, of one batch with {one}, and distributions of the same mean "
        "and variance. Distance: total variation, 0 for a perfect fit, mean (and 95 % "
        "interval) over seeds.",
        draw,
    )


def _all(comparison: Comparison, read: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    """Return the tables that `read` finds in all runs of `comparison` as one."""
    found = []
    runs: Any = comparison.runs.itertuples()
    for run in runs:
        table = read(run.path)
        if len(table):
            config = load.config(run.path)
            sent = float((config.get("controller") or {}).get("density", 1.0))
            found.append(Saw(run.method, run.seed, _kept(config), table, sent))
    return watched.together(found)


def _kept(config: dict[str, Any]) -> float:
    """Return the density of activations that cross cuts: 1 if all do, nan for other schemes."""
    activations = config.get("activations") or {}
    if activations and not keeps_largest(str(activations.get("_target_"))):
        return float("nan")
    return float(activations.get("density", 1.0))


def _whole(rows: pd.DataFrame) -> str:
    """Return the first method, by name, that keeps all activations, else the first of all."""
    return str(min(rows.method[rows.kept == 1], default=min(rows.method)))
