"""Figures of a comparison: DataFrames of `harness.metrics` in, matplotlib Figures out."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.figures.look import LOOK, NothingToDraw, Style, legend, sheet, styles

RATE: Any = {"color": "0.45", "linewidth": 1.2, "linestyle": (0, (4, 2))}
FAR = 8  # a time axis whose ends differ by this factor is logarithmic


@mpl.rc_context(LOOK)
def speedup_bars(comparison: pd.DataFrame, title: str = "") -> Figure:
    """Normalised training speed-up of each method, from `metrics.compare`."""
    return _bars(comparison, "speedup", "normalised training speed-up (×)", title)


@mpl.rc_context(LOOK)
def throughput_bars(comparison: pd.DataFrame, title: str = "") -> Figure:
    """Normalised throughput of each method, from `metrics.compare`."""
    return _bars(comparison, "normalised_throughput", "normalised throughput (×)", title)


@mpl.rc_context(LOOK)
def quality_time(comparison: pd.DataFrame, title: str = "") -> Figure:
    """Final quality against total training time, one point per method, from `metrics.compare`."""
    shown = _known(comparison, "final")
    figure, axes = _figure(title)
    for row, style in _styled(shown):
        axes.errorbar(
            row.time_s,
            row.final,
            xerr=_error(row, "time_s"),
            yerr=_error(row, "final"),
            color=style.color,
            linestyle="none",
            capsize=3,
        )
        look: Any = {"color": style.color, "marker": style.marker, "linestyle": "none"}
        axes.plot(row.time_s, row.final, label=row.method, markersize=8, **look)
    axes.margins(0.12)
    _time_axis(axes, shown.time_s, "total training time")
    axes.set_ylabel(f"final {shown.metric.iloc[0].replace('_', ' ')}")
    return legend(figure, axes)


@mpl.rc_context(LOOK)
def quality_curves(curves: Mapping[str, pd.DataFrame], metric: str, title: str = "") -> Figure:
    """Quality over training time, a line per method, from `metrics.curve`."""
    _known(pd.concat(curves.values()), "value")
    figure, axes = _figure(title)
    for method, style in styles(curves).items():
        if method in curves:
            _line(axes, method, style, curves[method], "value")
            low_high = curves[method].dropna(subset=["low"])
            axes.fill_between(
                low_high.time_s, low_high.low, low_high.high, color=style.color, alpha=0.15, lw=0
            )
    ends = pd.Series([curve.time_s.max() for curve in curves.values()])
    _time_axis(axes, ends, "training time")
    axes.set_ylabel(metric.replace("_", " "))
    return legend(figure, axes)


@mpl.rc_context(LOOK)
def density_time(
    series: Mapping[str, pd.DataFrame], rate: pd.DataFrame | None = None, title: str = ""
) -> Figure:
    """Density over time, a line per method, the planned link rate beneath."""
    _known(pd.concat(series.values()), "density")
    with_rate = rate is not None and not rate.empty
    figure = sheet(title, 5.0 if with_rate else 3.6)
    ratios = [2.2, 1] if with_rate else [1]
    panels = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios, squeeze=False)[:, 0]
    for method, style in styles(series).items():
        if method in series:
            _line(panels[0], method, style, series[method], "density")
    panels[0].set_yscale("log")
    panels[0].set_ylabel("density")
    if rate is not None and with_rate:
        panels[1].plot(rate.time_s, rate.planned_mbit, drawstyle="steps-post", **RATE)
        panels[1].set_ylabel("slowest link\n(Mbit/s)")
        panels[1].set_ylim(bottom=0)
    _cut(panels[-1], series)
    return legend(figure, panels[0])


@mpl.rc_context(LOOK)
def goodput_time(
    series: Mapping[str, pd.DataFrame], rate: pd.DataFrame | None = None, title: str = ""
) -> Figure:
    """Goodput over time, a line per method, beside the planned rate of the slowest link."""
    _known(pd.concat(series.values()), "goodput_mbit")
    figure, axes = _figure(title)
    if rate is not None and not rate.empty:
        label = "planned rate, slowest link"
        axes.plot(rate.time_s, rate.planned_mbit, drawstyle="steps-post", label=label, **RATE)
    for method, style in styles(series).items():
        if method in series:
            _line(axes, method, style, series[method], "goodput_mbit")
    axes.set_ylabel("goodput per worker (Mbit/s)")
    axes.set_ylim(bottom=0)
    _cut(axes, series)
    return legend(figure, axes)


@mpl.rc_context(LOOK)
def breakdown_bars(comparison: pd.DataFrame, title: str = "") -> Figure:
    """Compute, compression and exposed communication of an iteration, from `metrics.compare`."""
    shown = _known(comparison, "iteration_s")
    figure, axes = _figure(title, height=1.6 + 0.42 * len(shown))
    places, left = np.arange(len(shown)), np.zeros(len(shown))
    parts = {
        "compute_s": ("0.75", ""),
        "compress_s": ("#E69F00", "//"),
        "exposed_s": ("#0072B2", ".."),
    }
    for part, (color, hatch) in parts.items():
        label = {"exposed_s": "exposed communication"}.get(part, part.removesuffix("_s"))
        widths = shown[part].to_numpy()
        axes.barh(places, widths, 0.62, left, label=label, **_fill(color, hatch))
        left = left + widths
    axes.plot(shown.iteration_s, places, "D", color="black", markersize=5, label="iteration")
    axes.set_yticks(places, list(shown.method))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("mean time per iteration (emulated s)")
    return legend(figure, axes)


def _figure(title: str, height: float = 4.2) -> tuple[Figure, Axes]:
    figure = sheet(title, height)
    return figure, figure.subplots()


def _known(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows that have a number in `column`, at least one."""
    shown = table.dropna(subset=[column])
    if shown.empty:
        raise NothingToDraw(f"no method has a number for {column}")
    return shown


def _styled(table: pd.DataFrame) -> list[tuple[Any, Style]]:
    looks = styles(table.method)
    rows: Any = table.itertuples()
    return [(row, looks[row.method]) for row in rows]


def _fill(color: str, hatch: str) -> dict[str, Any]:
    return {"facecolor": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}


def _error(row: Any, name: str) -> list[list[float]] | None:
    """Interval of `row` as matplotlib wants it; None without one."""
    mean, low, high = (getattr(row, name + end) for end in ("", "_low", "_high"))
    return None if np.isnan(low) else [[max(0.0, mean - low)], [max(0.0, high - mean)]]


def _bars(comparison: pd.DataFrame, column: str, label: str, title: str) -> Figure:
    shown = _known(comparison, column)
    figure, axes = _figure(title, height=1.3 + 0.42 * len(shown))
    for place, (row, style) in enumerate(_styled(shown)):
        value, error = getattr(row, column), _error(row, column)
        axes.barh(place, value, 0.62, **_fill(style.color, style.hatch))
        axes.errorbar(value, place, xerr=error, color="0.25", capsize=3, linestyle="none")
        tip = value + (error[1][0] if error else 0)
        text = f"{value:.3g}" + (" (diverged)" if row.diverged and not value else "")
        axes.annotate(text, (tip, place), (5, 0), textcoords="offset points", va="center")
    axes.axvline(1, color="0.25", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(shown)), list(shown.method))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.1)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    return figure


def _line(axes: Axes, method: str, style: Style, table: pd.DataFrame, column: str) -> None:
    every = 1 if len(table) <= 15 else 0.12
    look: Any = {"color": style.color, "marker": style.marker, "linestyle": style.linestyle}
    axes.plot(
        table.time_s, table[column], label=method, markevery=every, markersize=5, lw=1.4, **look
    )


def _time_axis(axes: Axes, ends: pd.Series, label: str) -> None:
    if ends.max() > FAR * ends.min() > 0:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    axes.set_xlabel(f"{label} (emulated s)")


def _cut(axes: Axes, series: Mapping[str, pd.DataFrame]) -> None:
    """End the time axis with the second longest run where the longest would squeeze the others."""
    ends = sorted((table.time_s.max(), method) for method, table in series.items())
    last, slowest = ends[-1]
    end = ends[-2][0] if len(ends) > 1 and last > 1.5 * ends[-2][0] else last
    note = "" if end == last else f"; {slowest} goes on to {last:,.0f} s"
    axes.set_xlim(0, end * 1.02)
    axes.set_xlabel(f"training time (emulated s{note})")
