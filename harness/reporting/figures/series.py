"""Figures of density, throughput and goodput over time or steps, from one run of each method.

Many methods are split over several panels with the same scale; each panel has the baseline.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.figures.link_load import FlowSpan
from harness.reporting.figures.styles import Style, of_line, panels, styles
from harness.reporting.figures.theme import LOOK, NothingToDraw, legend, logarithmic, sheet, thinned

RATE: Any = {"color": "0.45", "linewidth": 1.2, "linestyle": (0, (4, 2))}
PANEL_IN, RATE_IN, FRAME_IN = 2.6, 1.3, 1.1
FEW_POINTS = 15  # a longer line has fewer markers than points
FAR = 1.5  # a run longer than the second longest by this factor is cut

Series = Mapping[str, pd.DataFrame]


class PanelColumn(NamedTuple):
    """A column of a run's table, with its axis label and scale."""

    column: str
    label: str
    log: bool = False


DENSITY = PanelColumn("density", "density", log=True)
THROUGHPUT = PanelColumn("throughput", "samples/s")
GOODPUT = PanelColumn("goodput_mbit", "goodput per worker\n(Mbit/s)")


@mpl.rc_context(LOOK)
def density_time(
    series: Series,
    rate: pd.DataFrame | None = None,
    title: str = "",
    spans: Sequence[FlowSpan] = (),
) -> Figure:
    """Plot density over time, a line per method; the slowest link's planned rate is below."""
    return _over_time(series, DENSITY, rate, title, spans)


@mpl.rc_context(LOOK)
def throughput_time(
    series: Series,
    rate: pd.DataFrame | None = None,
    title: str = "",
    spans: Sequence[FlowSpan] = (),
) -> Figure:
    """Plot samples/s over time, a line per method; the slowest link's planned rate is below."""
    return _over_time(series, THROUGHPUT, rate, title, spans)


@mpl.rc_context(LOOK)
def goodput_time(
    series: Series,
    rate: pd.DataFrame | None = None,
    title: str = "",
    spans: Sequence[FlowSpan] = (),
) -> Figure:
    """Plot goodput over time, a line per method, and the slowest link's planned rate."""
    return _over_time(series, GOODPUT, rate, title, spans, beside=True)


@mpl.rc_context(LOOK)
def running_goodput(
    series: Series,
    rate: pd.DataFrame | None = None,
    title: str = "",
    spans: Sequence[FlowSpan] = (),
) -> Figure:
    """Plot goodput over time, averaged over communication time alone; else like `goodput_time`."""
    shown = GOODPUT._replace(label="goodput while\ncommunicating (Mbit/s)")
    return _over_time(series, shown, rate, title, spans, beside=True)


@mpl.rc_context(LOOK)
def density_throughput(series: Series, title: str = "") -> Figure:
    """Plot density and samples/s over steps, a pair of panels for each group of methods."""
    _known(series, "density")
    groups = panels(series)
    figure = sheet(title, 1.5 * PANEL_IN * len(groups) + FRAME_IN)
    rows = figure.subplots(2 * len(groups), 1, sharex=True)
    values = pd.concat([table.density for table in series.values()])
    looks = styles(series)
    for upper, lower, group in zip(rows[::2], rows[1::2], groups, strict=True):
        if upper is not rows[0]:
            upper.sharey(rows[0])
            lower.sharey(rows[1])
        for method in group:
            _line(upper, method, looks[method], series[method], "step", "density")
            _line(lower, method, looks[method], series[method], "step", "throughput")
        logarithmic(upper.yaxis, values.min(), values.max())
        upper.set_ylabel("density")
        lower.set_ylabel("samples/s")
        if len(groups) > 1:
            upper.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=8)
    rows[1].set_ylim(bottom=0)
    rows[-1].set_xlabel("step")
    return legend(figure, rows[0]) if len(groups) == 1 else figure


def _over_time(
    series: Series,
    shown: PanelColumn,
    rate: pd.DataFrame | None,
    title: str,
    spans: Sequence[FlowSpan],
    beside: bool = False,  # draw the rate in the panels of the methods, not below them
) -> Figure:
    _known(series, shown.column)
    groups = panels(series)
    known = rate if rate is not None and not rate.empty else None
    beneath = known is not None and not beside
    heights = [PANEL_IN * (1.0 if len(groups) > 1 else 1.2)] * len(groups) + [RATE_IN] * beneath
    figure = sheet(title, sum(heights) + FRAME_IN)
    rows = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    ends = sorted(float(table.time_s.max()) for table in series.values())
    is_cut = len(ends) > 1 and ends[-1] > FAR * ends[-2]  # one run is far longer than the others
    looks, end_s = styles(series), ends[-2] if is_cut else ends[-1]
    for axes, group in zip(rows, groups, strict=False):
        axes.sharey(rows[0])
        _shade(axes, spans)
        if known is not None and beside:
            _rate(axes, known, "planned rate,\nslowest link")
        for method in group:
            _line(axes, method, looks[method], series[method], "time_s", shown.column)
        axes.set_ylabel(shown.label)
        if len(groups) > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=8)
    _scale(rows[0], series, shown, end_s)
    if known is not None and beneath:
        _shade(rows[-1], spans)
        _rate(rows[-1], known, "")
        rows[-1].set_ylabel("slowest link\n(Mbit/s)")
        rows[-1].set_ylim(bottom=0)
    _time_axis(rows[-1], series, end_s, bool(spans))
    return legend(figure, rows[0]) if len(groups) == 1 else figure


def _known(series: Series, column: str) -> None:
    if all(table[column].isna().all() for table in series.values()):
        raise NothingToDraw(f"no method has a number for {column}")


def _rate(axes: Axes, rate: pd.DataFrame, label: str) -> None:
    rate = thinned(rate, "planned_mbit")
    axes.plot(rate.time_s, rate.planned_mbit, drawstyle="steps-post", label=label, **RATE)


def _shade(axes: Axes, spans: Sequence[FlowSpan]) -> None:
    """Shade the intervals with competing flows."""
    for span in spans:
        axes.axvspan(span.start_s, span.end_s, color="0.93", linewidth=0, zorder=0)


def _scale(axes: Axes, series: Series, shown: PanelColumn, end_s: float) -> None:
    values = pd.concat([t[t.time_s <= end_s][shown.column] for t in series.values()]).dropna()
    if shown.log and len(values):
        logarithmic(axes.yaxis, values.min(), values.max())
    else:
        axes.set_ylim(bottom=0)


def _line(axes: Axes, method: str, style: Style, table: pd.DataFrame, x: str, y: str) -> None:
    every = 1 if len(table) <= FEW_POINTS else 0.12
    table = thinned(table, y)
    axes.plot(
        table[x], table[y], label=method, markevery=every, markersize=5, lw=1.3, **of_line(style)
    )


def _time_axis(axes: Axes, series: Series, end_s: float, shaded: bool) -> None:
    last, slowest = max((float(table.time_s.max()), method) for method, table in series.items())
    notes = [f"{slowest} goes on to {last:,.0f} s"] if last > end_s else []
    notes += ["shaded: competing flows"] if shaded else []
    axes.set_xlim(0, end_s * 1.02)
    axes.set_xlabel("; ".join(["training time (emulated s", *notes]) + ")")
