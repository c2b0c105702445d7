"""Plot histograms of activations before a cut, with the distributions fitted to them."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.figures.theme import LOOK, NothingToDraw, legend_of, sheet

TOLD: Any = {"ha": "right", "va": "top", "fontsize": 9}
BARS: Any = {"color": "0.78", "label": "activations"}
MODELS: dict[str, Any] = {
    "laplace": {"label": "Laplace fit", "color": "#0072B2"},  # Okabe & Ito (2008)
    "normal": {"label": "normal fit", "color": "#D55E00", "linestyle": (0, (4, 1.6))},
}


@mpl.rc_context(LOOK)
def activations(bins: pd.DataFrame, distances: pd.DataFrame, title: str = "") -> Figure:
    """Draw a row of panels for each cut, a panel for each step.

    `bins` are one run's and rank's histograms from `watched.shares`; `distances` are from
    `watched.distances`. On the logarithmic axis a Laplace distribution is two straight lines. Raise
    `NothingToDraw` without bins.
    """
    if bins.empty:
        raise NothingToDraw("histograms.csv has no row: no step of the run was asked for")
    cuts, steps = sorted(bins.of.unique()), sorted(bins.step.unique())
    figure = sheet(title, 1.3 + 2.9 * len(cuts), max(5.0, 1.0 + 3.4 * len(steps)))
    panels = figure.subplots(len(cuts), len(steps), sharey="row", squeeze=False)
    for row, cut in zip(panels, cuts, strict=True):
        for axes, step in zip(row, steps, strict=True):
            shown = bins[(bins.of == cut) & (bins.step == step)]
            if len(shown):
                _histogram(axes, shown)
            told = distances[(distances.of == cut) & (distances.step == step)]
            axes.set_title(f"{cut}, step {step}", fontsize=10)
            axes.text(0.98, 0.96, _apart(told), transform=axes.transAxes, **TOLD)
        row[0].set_ylabel("share of entries per bin")
    for axes in panels[-1]:
        axes.set_xlabel("activation")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    return legend_of(figure, dict(zip(labels, handles, strict=True)))


def _histogram(axes: Axes, bins: pd.DataFrame) -> None:
    edges = np.append(bins.low, bins.high.iloc[-1])
    least = 0.5 / bins.entries.sum()  # half an entry
    axes.stairs(bins.share, edges, fill=True, baseline=least, **BARS)
    for model, look in MODELS.items():
        axes.plot((edges[1:] + edges[:-1]) / 2, bins[model], linewidth=1.5, **look)
    axes.set_yscale("log")
    axes.set_ylim(least, 1)
    axes.set_xlim(edges[0], edges[-1])


def _apart(distances: pd.DataFrame) -> str:
    """Return a panel's text: the distance of each fit from the histogram."""
    rows: Any = distances.itertuples()
    said = [f"{row.model.capitalize()} {row.mean:.3f}{_between(row)}" for row in rows]
    return "\n".join(["distance", *said]) if said else ""


def _between(row: Any) -> str:
    return "" if np.isnan(row.low) else f" ({row.low:.3f}–{row.high:.3f})"
