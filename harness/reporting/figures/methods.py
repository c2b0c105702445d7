"""Figures that compare methods, drawn from the tables of `reporting.analysis.metrics`."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.figures.styles import BLUE, ORANGE, Style, of_bar, of_point, styles
from harness.reporting.figures.theme import (
    LOOK,
    NothingToDraw,
    aim,
    legend,
    logarithmic,
    sheet,
    spans_decades,
)

NARROW = 3  # a density axis whose ends differ by more is logarithmic


@mpl.rc_context(LOOK)
def quality_over_time_bars(comparison: pd.DataFrame, title: str = "") -> Figure:
    """Plot final quality / run time over the baseline's, a bar per row of `metrics.compare`."""
    return _bars(comparison, "speedup", "final quality over time, over the baseline's (×)", title)


@mpl.rc_context(LOOK)
def throughput_bars(comparison: pd.DataFrame, title: str = "") -> Figure:
    """Plot throughput relative to the baseline, a bar per row of `metrics.compare`."""
    label = "samples/s over the baseline's (×)"
    return _bars(comparison, "normalised_throughput", label, title)


@mpl.rc_context(LOOK)
def quality_time(comparison: pd.DataFrame, title: str = "", target: float | None = None) -> Figure:
    """Plot final quality over total training time, a point per method of `metrics.compare`."""
    shown = _known(comparison, "final")
    figure = _points(shown, comparison.method, "time_s", title, target)
    axes = figure.axes[0]
    if spans_decades(shown.time_s):
        logarithmic(axes.xaxis, shown.time_s.min(), shown.time_s.max())
    else:
        axes.set_xlim(left=0)
    axes.set_xlabel("total training time (emulated s)")
    return figure


@mpl.rc_context(LOOK)
def quality_density(
    comparison: pd.DataFrame, title: str = "", target: float | None = None
) -> Figure:
    """Plot final quality over mean density, a point per method of `metrics.compare`."""
    shown = _known(_known(comparison, "final"), "density")
    figure = _points(shown, comparison.method, "density", title, target)
    axes = figure.axes[0]
    if shown.density.max() > NARROW * shown.density.min() > 0:
        logarithmic(axes.xaxis, shown.density.min(), shown.density.max())
    axes.set_xlabel("mean density")
    return figure


@mpl.rc_context(LOOK)
def breakdown_bars(comparison: pd.DataFrame, title: str = "") -> Figure:
    """Plot compute, compression and exposed communication per iteration, from `metrics.compare`."""
    shown = _known(_known(comparison, "iteration_s"), "compute_s")
    figure, axes = _figure(title, height=1.6 + 0.42 * len(shown))
    places, left = np.arange(len(shown)), np.zeros(len(shown))
    parts = {"compute_s": "0.75", "compress_s": ORANGE, "exposed_s": BLUE}
    for part, color in parts.items():
        label = {"exposed_s": "exposed communication"}.get(part, part.removesuffix("_s"))
        widths = shown[part].to_numpy()
        look: dict[str, Any] = {"facecolor": color, "edgecolor": "white", "linewidth": 0.5}
        axes.barh(places, widths, 0.62, left, label=label, **look)
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
    """Return the rows with a number in `column`; raise NothingToDraw if there is none."""
    shown = table.dropna(subset=[column])
    if shown.empty:
        raise NothingToDraw(f"no method has a number for {column}")
    return shown


def _styled(shown: pd.DataFrame, methods: pd.Series) -> list[tuple[Any, Style]]:
    """Return the rows of `shown`, each with its style; styles are assigned among all `methods`."""
    looks = styles(methods)
    rows: Any = shown.itertuples()
    return [(row, looks[row.method]) for row in rows]


def _error(row: Any, name: str) -> list[list[float]] | None:
    """Return the interval of `row` as matplotlib's xerr or yerr; None if it has no interval."""
    mean, low, high = (getattr(row, name + end) for end in ("", "_low", "_high"))
    return None if np.isnan(low) else [[max(0.0, mean - low)], [max(0.0, high - mean)]]


def _points(
    shown: pd.DataFrame, methods: pd.Series, column: str, title: str, target: float | None
) -> Figure:
    """Plot `column` and final quality of each method, with their intervals."""
    figure, axes = _figure(title)
    for row, style in _styled(shown, methods):
        x = getattr(row, column)
        axes.errorbar(
            x,
            row.final,
            xerr=_error(row, column),
            yerr=_error(row, "final"),
            color=style.color,
            linestyle="none",
            capsize=3,
        )
        axes.plot(x, row.final, label=row.method, markersize=8, **of_point(style))
    axes.margins(0.12)
    aim(axes, target)
    axes.set_ylabel(f"final {shown.metric.iloc[0].replace('_', ' ')}")
    return legend(figure, axes)


def _bars(comparison: pd.DataFrame, column: str, label: str, title: str) -> Figure:
    shown = _known(comparison, column)
    figure, axes = _figure(title, height=1.3 + 0.42 * len(shown))
    for place, (row, style) in enumerate(_styled(shown, comparison.method)):
        value, error = getattr(row, column), _error(row, column)
        axes.barh(place, value, 0.62, **of_bar(style))
        axes.errorbar(value, place, xerr=error, color="0.25", capsize=3, linestyle="none")
        tip = value + (error[1][0] if error else 0)
        remark = "diverged" if row.diverged and not value else getattr(row, "remark", "")
        text = f"{value:.3g}" + f" ({remark})" * bool(remark)
        axes.annotate(
            text, (tip, place), (5, 0), textcoords="offset points", va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # hides the baseline's line
        )  # fmt: skip
    axes.axvline(1, color="0.25", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(shown)), list(shown.method))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.1)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    return figure
