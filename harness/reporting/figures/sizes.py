"""Figure of the distribution of tensor sizes, which shows how compression changes message sizes."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from harness.reporting.figures.theme import LOOK, sheet

HEIGHT_IN = 3.2
LINES = ("-", "--", ":")


@mpl.rc_context(LOOK)
def cumulative(models: Mapping[str, Mapping[str, Sequence[int]]]) -> Figure:
    """Plot cumulative shares of tensor sizes: a panel per model, a line per kind of tensor."""
    figure = sheet("share of tensors with at most so many elements", HEIGHT_IN)
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, (model, kinds) in zip(panels, models.items(), strict=True):
        for line, (name, elements) in zip(LINES, kinds.items(), strict=False):
            axes.ecdf(elements, label=name, linestyle=line)
        axes.set(xscale="log", xlabel="elements", title=model)
    panels[0].set(ylabel="share of tensors")
    panels[0].legend()
    return figure
