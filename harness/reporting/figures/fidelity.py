"""Figure of `study fidelity`: the cost model's predictions over the published values."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from harness.reporting.figures.theme import LOOK, NothingToDraw, sheet

HEIGHT_IN = 6.2
STYLES = (("o", "#0072B2"), ("s", "#D55E00"), ("^", "#009E73"), ("D", "#882255"))  # of papers
OTHERS = {"input": ("|", "input"), "left out": ("x", "does not count")}


@mpl.rc_context(LOOK)
def scatter(cells: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Plot predicted over published values on logarithmic axes, a point per cell, in any unit.

    The line marks agreement and the grey band 30 % around it. `cells` has columns paper, value,
    predicted and standing; `titles` maps papers to their legend entries, in order. Raise
    NothingToDraw if no cell has two positive values.
    """
    cells = cells.assign(published=pd.to_numeric(cells.value, errors="coerce"))
    cells = cells[(cells.published > 0) & (cells.predicted > 0)]
    if cells.empty:
        raise NothingToDraw("no cell has a positive figure, both published and predicted")
    figure = sheet("predicted against published times, ratios and throughput", HEIGHT_IN)
    axes = figure.subplots()
    low = min(cells.published.min(), cells.predicted.min()) / 1.5
    high = max(cells.published.max(), cells.predicted.max()) * 1.5
    axes.fill_between([low, high], [low * 0.7, high * 0.7], [low * 1.3, high * 1.3], color="0.9")
    axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
    for (paper, name), (dot, color) in zip(titles.items(), cycle(STYLES), strict=False):
        of_paper = cells[cells.paper == paper]
        group = of_paper[of_paper.standing == "counts"]
        if len(group):
            told: Any = {"marker": dot, "label": f"{name} ({len(group)})"}
            axes.scatter(group.published, group.predicted, 26, c=color, alpha=0.75, **told)
        for standing, (marker, _) in OTHERS.items():
            group = of_paper[of_paper.standing == standing]
            axes.scatter(group.published, group.predicted, 20, c=color, marker=marker, alpha=0.6)
    for marker, label in OTHERS.values():
        axes.scatter([], [], 20, c="0.4", marker=marker, label=label)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel="published, in the cell's unit", ylabel="predicted")
    axes.legend(loc="upper left")
    return figure
