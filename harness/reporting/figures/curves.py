"""Figures of model quality over time or steps, drawn from the tables of `metrics.curve`."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.figures.styles import Style, of_line, ordered, panels, styles
from harness.reporting.figures.theme import (
    LOOK,
    NothingToDraw,
    aim,
    legend,
    legend_of,
    logarithmic,
    sheet,
    spans_decades,
)

FEW_POINTS = 15
PANEL_IN, FRAME_IN = 2.9, 1.3
TITLE_LETTERS = 40  # in a line of a panel's title

Curves = Mapping[str, pd.DataFrame]


@mpl.rc_context(LOOK)
def quality_curves(
    curves: Curves, metric: str, title: str = "", target: float | None = None
) -> Figure:
    """Plot quality over training time, a line per method of `metrics.curve`, and the target."""
    figure, rows = _panels(curves, metric, title, "time_s", target)
    _time_axis(rows[-1], curves)
    return figure


@mpl.rc_context(LOOK)
def quality_steps(
    curves: Curves, metric: str, title: str = "", target: float | None = None
) -> Figure:
    """Plot quality over steps; otherwise like `quality_curves`."""
    figure, rows = _panels(curves, metric, title, "step", target)
    rows[-1].set_xlabel("step")
    rows[-1].set_xlim(left=0)
    return figure


@mpl.rc_context(LOOK)
def quality_conditions(
    conditions: Mapping[str, Curves],
    metric: str,
    title: str = "",
    most: int = 3,
    targets: Mapping[str, float | None] | None = None,
) -> Figure:
    """Plot quality over time, a panel per condition with its target, at most `most` in a row.

    Raise NothingToDraw if no condition has a value.
    """
    methods = {method for curves in conditions.values() for method in curves}
    known = {said: curves for said, curves in conditions.items() if _values(curves).notna().any()}
    if not known:
        raise NothingToDraw("no method has a number for value")
    columns = min(most, len(known))
    rows = -(-len(known) // columns)
    figure = sheet(title, FRAME_IN + PANEL_IN * rows, 2.9 * columns + 0.8)
    all_axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    looks = styles(methods)
    entries: dict[str, Any] = {}
    for axes, (said, curves) in zip(all_axes, known.items(), strict=False):
        _draw(axes, ordered(curves), curves, looks, "time_s")
        aim(axes, (targets or {}).get(said))
        _time_axis(axes, curves)
        axes.set_title(fill(said, TITLE_LETTERS), fontsize=9)
        entries |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    for axes in all_axes[len(known) :]:
        axes.set_axis_off()
    for row in range(rows):
        all_axes[row * columns].set_ylabel(metric.replace("_", " "))
    return legend_of(figure, {name: entries[name] for name in ordered(entries)})


def _values(curves: Curves) -> pd.Series:
    return pd.concat([table.value for table in curves.values()])


def _panels(
    curves: Curves, metric: str, title: str, x: str, target: float | None
) -> tuple[Figure, list[Axes]]:
    if _values(curves).isna().all():
        raise NothingToDraw("no method has a number for value")
    groups = panels(curves)
    height_in = PANEL_IN * len(groups) if len(groups) > 1 else PANEL_IN * 1.1
    figure = sheet(title, height_in + FRAME_IN)
    rows = figure.subplots(len(groups), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    looks = styles(curves)
    for axes, group in zip(rows, groups, strict=True):
        _draw(axes, group, curves, looks, x)
        aim(axes, target)
        axes.set_ylabel(metric.replace("_", " "))
        if len(groups) > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=8)
    if len(groups) == 1:
        legend(figure, rows[0])
    return figure, list(rows)


def _draw(
    axes: Axes, methods: list[str], curves: Curves, looks: Mapping[str, Style], x: str
) -> None:
    for method in methods:
        table = curves[method]
        every = 1 if len(table) <= FEW_POINTS else 0.12
        look = of_line(looks[method])
        axes.plot(
            table[x], table.value, label=method, markevery=every, markersize=5, lw=1.3, **look
        )
        within = table.dropna(subset=["low"])
        axes.fill_between(
            within[x], within.low, within.high, color=looks[method].color, alpha=0.15, lw=0
        )


def _time_axis(axes: Axes, curves: Curves) -> None:
    known = [table.time_s for table in curves.values() if len(table)]
    begin, ends = min(float(times.min()) for times in known), [float(t.max()) for t in known]
    if spans_decades(ends) and begin > 0:
        logarithmic(axes.xaxis, begin, max(ends))
    else:
        axes.set_xlim(left=0)
    axes.set_xlabel("training time (emulated s)")
