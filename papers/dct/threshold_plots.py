"""Plot thresholds over steps, and the share of values that is sent."""

from collections.abc import Mapping
from math import log10
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.reporting.figures.styles import COLORS, MARKERS, Style, of_line, styles
from harness.reporting.figures.theme import LOOK, NothingToDraw, legend_of, logarithmic, sheet

PANEL_IN, FRAME_IN = 2.7, 1.4
WIDE = 8  # thresholds that differ by more than this factor get a logarithmic axis
ROOM = 1.8  # factor above and below the values on a logarithmic axis
MARKS = 0.11  # of a line's length between two markers
DOTTED = (0, (1, 1.2))
OCTAVE = 6  # densities of a decade with styles of their own
LEAST_DENSITY = 1e-12  # smallest density with a colour of its own
KINDS: tuple[Any, ...] = ("-", DOTTED)


def of_density(density: float) -> Style:
    """Return the style of lines for `density`: solid, coloured by its logarithm."""
    place = round(OCTAVE * log10(1 / max(density, LEAST_DENSITY)))
    return Style(COLORS[place % len(COLORS)], MARKERS[place % len(MARKERS)])


@mpl.rc_context(LOOK)
def thresholds(lines: pd.DataFrame, label: str, title: str = "") -> Figure:
    """Draw thresholds over steps: a panel per layer, a line per density and kind.

    `lines` has columns of, density, step, value, low, high, and perhaps kind; the second kind is
    dotted. Raise NothingToDraw if no threshold is above 0.
    """
    if lines.empty or not (lines.value > 0).any():
        raise NothingToDraw("nothing that a watch saw has a threshold above 0")
    layers = sorted(lines.of.unique())
    figure = sheet(title, FRAME_IN + PANEL_IN * len(layers))
    rows = figure.subplots(len(layers), 1, sharex=True, squeeze=False)[:, 0]
    kinds = list(lines.kind.unique()) if "kind" in lines else []
    for axes, layer in zip(rows, layers, strict=True):
        shown = lines[lines.of == layer]
        for (density, *kind), line in shown.groupby(["density", *(["kind"] if kinds else [])]):
            look = of_density(density)._replace(linestyle=KINDS[kinds.index(*kind) if kind else 0])
            _line(axes, line, look._replace(hollow=look.linestyle == DOTTED))
        _scale(axes, shown.value[shown.value > 0])
        axes.set_ylabel(label)
        axes.set_title(layer, fontsize=10)
    _steps(rows[-1], lines)
    found = sorted(lines.density.unique(), reverse=True)
    handles = {
        f"density {density:g}": Line2D([], [], **of_line(of_density(density))) for density in found
    }
    for kind, line in zip(kinds, KINDS, strict=False):
        handles[kind] = Line2D([], [], color="0.3", linestyle=line)
    return legend_of(figure, handles)


@mpl.rc_context(LOOK)
def achieved_density(
    shares: Mapping[str, pd.DataFrame], asked: Mapping[str, float], what: str, title: str = ""
) -> Figure:
    """Draw the share of `what` that each method sent over steps, and the `asked` one dotted.

    `shares` has a table by method with columns step, value, low, high. Raise NothingToDraw without
    a value.
    """
    most_first = sorted(shares, key=lambda method: -asked[method])
    known = {name: shares[name] for name in most_first if shares[name].value.notna().any()}
    if not known:
        raise NothingToDraw("no method has a number for achieved_density")
    figure = sheet(title, FRAME_IN + 1.3 * PANEL_IN)
    axes = figure.subplots()
    looks = styles(shares)
    for place, (method, table) in enumerate(known.items()):
        _line(axes, table, looks[method]._replace(linestyle="-"), method, place)
        axes.axhline(asked[method], color=looks[method].color, linestyle=DOTTED, linewidth=1.1)
    values = pd.concat(
        [
            *(table.value for table in known.values()),
            pd.Series({name: asked[name] for name in known}),
        ]
    )
    _scale(axes, values[values > 0])
    axes.set_ylim(top=min(axes.get_ylim()[1], 1.05))
    axes.set_ylabel(f"share of {what} sent")
    _steps(axes, pd.concat(known.values()))
    drawn, names = axes.get_legend_handles_labels()
    handles = dict(zip(names, drawn, strict=True))
    return legend_of(figure, handles | {"asked for": Line2D([], [], color="0.3", linestyle=DOTTED)})


def _line(
    axes: Axes, table: pd.DataFrame, style: Style, label: str | None = None, place: int = 0
) -> None:
    """Draw a line and its interval; `place` shifts its markers, so that equal lines show."""
    every = (place % 4 * MARKS / 4, MARKS)
    look = of_line(style) | {"markersize": 4.5, "linewidth": 1.3, "markevery": every}
    axes.plot(table.step, table.value, label=label, **look)
    within = table.dropna(subset=["low"])
    axes.fill_between(
        within.step, within.low, within.high, color=style.color, alpha=0.15, linewidth=0
    )


def _scale(axes: Axes, values: pd.Series) -> None:
    if values.max() > WIDE * values.min():
        logarithmic(axes.yaxis, float(values.min()), float(values.max()))
        axes.set_ylim(values.min() / ROOM, values.max() * ROOM)  # even if an interval reaches below
    else:
        axes.set_ylim(bottom=0)


def _steps(axes: Axes, table: pd.DataFrame) -> None:
    axes.set_xlim(0, max(1, table.step.max()))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("step")
