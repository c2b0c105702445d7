"""Figures over the link rate, or of the rate needed for a goal, with a line per method."""

from collections.abc import Mapping

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.figures.styles import BASELINE, styles
from harness.reporting.figures.theme import (
    LOOK,
    NothingToDraw,
    legend,
    logarithmic,
    sheet,
    spans_decades,
)

HEIGHT_IN = 4.2
RATE = "rate of every link (Mbit/s)"
NOTED_IN = 0.17  # height of a legend entry if there are notes
FIRST_SIZE = 11  # points, of the fastest method's marker; others have matplotlib's size


@mpl.rc_context(LOOK)
def over_rates(
    lines: Mapping[str, pd.Series], measured: Mapping[str, pd.Series], label: str, title: str = ""
) -> Figure:
    """Plot `lines`, indexed by rate in Mbit/s, and `measured` values as single points.

    All values are > 0; the axis is logarithmic if they span decades.
    """
    figure, axes = _sheet(lines, title)
    looks = styles(lines)
    for name, line in lines.items():
        axes.plot(line.index, line, label=name, color=looks[name].color)
    for name, points in measured.items():
        marked = {"color": looks[name].color, "marker": looks[name].marker, "linestyle": "none"}
        axes.plot(points.index, points, label=f"{name}, measured", **marked)
    _axes(axes, [*lines.values(), *measured.values()], label)
    axes.set_xlabel(RATE)
    return legend(figure, axes)


@mpl.rc_context(LOOK)
def needed_rates(lines: Mapping[str, pd.Series], label: str, title: str = "") -> Figure:
    """Plot the rate in Mbit/s that each of `lines` needs, over its index, such as percentages."""
    figure, axes = _sheet(lines, title)
    looks = styles(lines)
    for name, line in lines.items():
        look = looks[name]
        axes.plot(line.index, line, label=name, color=look.color, marker=look.marker)
        axes.set_xticks(list(line.index))
    every = pd.concat(list(lines.values())).dropna()
    logarithmic(axes.yaxis, every.min(), every.max())
    axes.set_ylabel(RATE)
    axes.set_xlabel(label)
    return legend(figure, axes)


@mpl.rc_context(LOOK)
def times_over_rates(
    lines: Mapping[str, pd.DataFrame],
    label: str,
    title: str = "",
    notes: Mapping[str, str] = {},  # noqa: B006  read only
) -> Figure:
    """Plot mean times over rates with intervals; the fastest method at a rate has a larger marker.

    Each table is indexed by Mbit/s and has columns mean_s, low_s and high_s; NaN means that not all
    runs reached the target. `notes` extend the legend entries.
    """
    known = {name: each for name, each in lines.items() if each.mean_s.notna().any()}
    figure, axes = _sheet({name: each.mean_s for name, each in known.items()}, title)
    figure.set_figheight(HEIGHT_IN + NOTED_IN * len(lines))
    looks = styles(lines)
    for name, each in lines.items():
        look, told = looks[name], f"{name}: {notes[name]}" if name in notes else name
        apart = each.mean_s - each.low_s, each.high_s - each.mean_s
        axes.errorbar(each.index, each.mean_s, yerr=apart, label=told, color=look.color,
                      marker=look.marker, capsize=2,
                      zorder=3 if look == BASELINE else 2)  # fmt: skip
    means = pd.DataFrame({name: each.mean_s for name, each in known.items()})
    first = means.dropna(how="all").idxmin(axis=1)
    for name, look in looks.items():
        there = means.loc[first.index[first == name], name] if name in known else pd.Series()
        axes.plot(there.index, there, color=look.color, marker=look.marker, linestyle="none",
                  markersize=FIRST_SIZE, markeredgecolor="black", zorder=4)  # fmt: skip
    _axes(axes, [each.mean_s for each in known.values()], label)
    axes.set_xlabel(RATE)
    return legend(figure, axes)


def _sheet(lines: Mapping[str, pd.Series], title: str) -> tuple[Figure, Axes]:
    if not any(line.notna().any() for line in lines.values()):
        raise NothingToDraw("no line has a number")
    figure = sheet(title, HEIGHT_IN)
    return figure, figure.subplots()


def _axes(axes: Axes, lines: list[pd.Series], label: str) -> None:
    every = pd.concat(lines).dropna()
    logarithmic(axes.xaxis, every.index.min(), every.index.max())
    if spans_decades(every):
        logarithmic(axes.yaxis, every.min(), every.max())
    axes.set_ylabel(label)
