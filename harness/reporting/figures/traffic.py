"""Figure of one run's links over time: planned and carried rate, queue, drops, competing flows."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from harness.reporting.figures.link_load import FlowSpan
from harness.reporting.figures.theme import LOOK, WIDTH_IN, NothingToDraw, sheet
from profiles.base import WAYS

CARRIED, PLANNED = "#0072B2", "0.25"  # Okabe & Ito (2008)
PLANNED_DASHES = (0, (4, 1.5))
MOST_LINES = 2  # per direction; more are drawn as a band and their median
LABELS = {
    "carried_mbit": "rate (Mbit/s)",
    "backlog_ms": "in queue\n(ms of rate)",
    "drops": "drops\nper sample",
}


@mpl.rc_context(LOOK)
def links_time(carried: pd.DataFrame, spans: Sequence[FlowSpan], title: str = "") -> Figure:
    """Plot the table of `link_load.over_time`; raise NothingToDraw if no link has two rates."""
    if (carried.groupby("link").carried_mbit.count() < 2).all():
        raise NothingToDraw("links.csv has too few rows to tell a rate")
    ways = [way for way in WAYS if (carried.way == way).any()]
    figure = sheet(title, 5.2, WIDTH_IN + 2.0 * (len(ways) - 1))
    panels = figure.subplots(
        len(LABELS), len(ways), sharex=True, sharey="row", height_ratios=[2.2, 1, 1], squeeze=False
    )
    for column, way in zip(panels.T, ways, strict=True):
        rows = carried[carried.way == way]
        names = sorted(rows.link.unique())
        said = names[0].replace("_", ", ") if len(names) == 1 else f"{len(names)} links, {way}"
        column[0].set_title(said, fontsize=10)
        column[-1].set_xlabel("training time (emulated s)")
        for axes, quantity in zip(column, LABELS, strict=True):
            _shade(axes, spans)
            if quantity == "carried_mbit":
                _draw(axes, rows, "planned_mbit", "planned")
            _draw(axes, rows, quantity, "carried")
    panels[0, 0].set_xlim(0, carried.time_s.max())
    for axes, (quantity, label) in zip(panels[:, 0], LABELS.items(), strict=True):
        highest = carried[quantity].max()
        if quantity == "carried_mbit":
            highest = max(highest, carried.planned_mbit.max())
        axes.set_ylim(0, 1.08 * highest or 1.0)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=quantity == "drops"))
        axes.set_ylabel(label)
    return _legend(figure, panels[0, 0], bool(spans))


def _shade(axes: Axes, spans: Sequence[FlowSpan]) -> None:
    for span in spans:
        axes.axvspan(span.start_s, span.end_s, color="0.93", linewidth=0, zorder=0)
        for end_s in span[:2]:
            axes.axvline(end_s, color="0.7", linewidth=0.5, zorder=0.5)


def _draw(axes: Axes, rows: pd.DataFrame, quantity: str, label: str) -> None:
    """Plot `quantity`: a line per link, or the median and range if there are many links."""
    planned = label == "planned"
    look: Any = {"color": PLANNED if planned else CARRIED, "linewidth": 1.3}
    look["drawstyle"] = "steps-post" if planned else "default"
    look["linestyle"] = PLANNED_DASHES if planned else "-"
    table = rows.pivot_table(index="time_s", columns="link", values=quantity, dropna=False)
    table = table.fillna(0) if quantity == "drops" else table.ffill()
    if len(table.columns) > MOST_LINES:
        band: Any = {"facecolor": "0.85", "hatch": "////"} if planned else {"facecolor": CARRIED}
        band |= {"edgecolor": look["color"], "alpha": 0.35, "linewidth": 0.4}
        step: Any = "post" if planned else None
        said = f"{label}, lowest to highest"
        axes.fill_between(
            table.index, table.min(axis=1), table.max(axis=1), step=step, label=said, **band
        )
        axes.plot(table.index, table.median(axis=1), label=f"{label}, median", **look)
        return
    for name in table:
        axes.plot(table.index, table[name], label=label, **look)
        label = "_"  # one legend entry for all links


def _legend(figure: Figure, axes: Axes, shaded: bool) -> Figure:
    """Add one legend below all panels, with the entries of `axes` and of the shading."""
    handles, labels = axes.get_legend_handles_labels()
    if shaded:
        handles.append(Patch(facecolor="0.93", edgecolor="0.7"))
        labels.append("competing flows")
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)))
    return figure
