"""Figure that compares step times in virtual time and over real packets (`agreement.Pair` rows)."""

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.reporting.figures.styles import of_point, styles
from harness.reporting.figures.theme import LOOK, NothingToDraw, legend, logarithmic, sheet

BAND = 0.15  # relative half width of the band around the diagonal


@mpl.rc_context(LOOK)
def agreement(pairs: pd.DataFrame, title: str = "") -> Figure:
    """Plot virtual over real step time, a point per row of `pairs`; NothingToDraw without rows."""
    if pairs.empty:
        raise NothingToDraw("no pair of runs differs in the network alone")
    figure = sheet(title, 5.6)
    axes = figure.subplots()
    both = pairs[["real_s", "virtual_s"]]
    ends = np.array([both.min().min() / 1.2, both.max().max() * 1.2])
    axes.plot(ends, ends, color="0.25", linewidth=1)
    axes.fill_between(ends, ends / (1 + BAND), ends * (1 + BAND), color="0.93", lw=0)
    for method, style in styles(pairs.method).items():
        rows = pairs[pairs.method == method]
        axes.plot(rows.real_s, rows.virtual_s, label=method, markersize=5, **of_point(style))
    for axis in (axes.xaxis, axes.yaxis):
        logarithmic(axis, *ends)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.set_xlabel("mean step, real packets (emulated s)")
    axes.set_ylabel(f"virtual time (s; grey: within {BAND:.0%})")
    return legend(figure, axes)
