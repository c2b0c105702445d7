"""Plot DCT's figures: thresholds, densities, histograms, step times, losses and quality."""

from collections.abc import Mapping
from math import log10
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.reporting.figures.styles import BLUE, COLORS, MARKERS, ORANGE, Style, of_line, styles
from harness.reporting.figures.theme import (
    LOOK,
    NothingToDraw,
    legend,
    legend_of,
    logarithmic,
    sheet,
)

PANEL_IN, FRAME_IN = 2.7, 1.4
WIDE = 8  # thresholds that differ by more than this factor get a logarithmic axis
ROOM = 1.8  # factor above and below the values on a logarithmic axis
MARKS = 0.11  # of a line's length between two markers
DOTTED = (0, (1, 1.2))
OCTAVE = 6  # densities of a decade with styles of their own
LEAST_DENSITY = 1e-12  # smallest density with a colour of its own
KINDS: tuple[Any, ...] = ("-", DOTTED)
PARTS = {
    "compute_s": ("compute", "0.75"),
    "compress_s": ("compress", ORANGE),
    "exposed_s": ("exposed communication", BLUE),
}
BARS: Any = {"edgecolor": "white", "linewidth": 0.5}
MODELS: dict[str, Any] = {
    "laplace": {"label": "Laplace fit", "color": "#0072B2"},  # Okabe & Ito (2008)
    "normal": {"label": "normal fit", "color": "#D55E00", "linestyle": (0, (4, 1.6))},
}
Tables = Mapping[str, pd.DataFrame]  # by method or setting


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
    shares: Tables, asked: Mapping[str, float], what: str, title: str = ""
) -> Figure:
    """Draw the share of `what` that each method sent over steps, and the `asked` one dotted.

    `shares` has tables of step, value, low, high by method. Raise NothingToDraw without a value.
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
    values = pd.concat([*(table.value for table in known.values()), pd.Series(asked)[list(known)]])
    _scale(axes, values[values > 0])
    axes.set_ylim(top=min(axes.get_ylim()[1], 1.05))
    axes.set_ylabel(f"share of {what} sent")
    _steps(axes, pd.concat(known.values()))
    drawn, names = axes.get_legend_handles_labels()
    handles = dict(zip(names, drawn, strict=True))
    return legend_of(figure, handles | {"asked for": Line2D([], [], color="0.3", linestyle=DOTTED)})


@mpl.rc_context(LOOK)
def activations(bins: pd.DataFrame, distances: pd.DataFrame, title: str = "") -> Figure:
    """Draw a row of panels for each cut, a panel for each step.

    `bins` are one run's and rank's histograms from `watched.shares`; `distances` are from
    `watched.distances`. On the logarithmic axis a Laplace distribution is two straight lines. Raise
    `NothingToDraw` without bins.
    """
    if bins.empty:
        raise NothingToDraw("histograms.csv has no row: no step of the run was asked for")
    cuts, steps = sorted(bins.of.unique()), sorted(bins.step.unique())
    figure = sheet(title, 1.3 + 2.9 * len(cuts), max(5.0, 1.0 + 3.4 * len(steps)))
    panels = figure.subplots(len(cuts), len(steps), sharey="row", squeeze=False)
    for row, cut in zip(panels, cuts, strict=True):
        for axes, step in zip(row, steps, strict=True):
            shown = bins[(bins.of == cut) & (bins.step == step)]
            if len(shown):
                _histogram(axes, shown)
            told = distances[(distances.of == cut) & (distances.step == step)]
            axes.set_title(f"{cut}, step {step}", fontsize=10)
            place: Any = {"transform": axes.transAxes, "ha": "right", "va": "top", "fontsize": 9}
            axes.text(0.98, 0.96, _apart(told), **place)
        row[0].set_ylabel("share of entries per bin")
    for axes in panels[-1]:
        axes.set_xlabel("activation")
    return legend(figure, panels[0, 0])


def _histogram(axes: Axes, bins: pd.DataFrame) -> None:
    edges = np.append(bins.low, bins.high.iloc[-1])
    least = 0.5 / bins.entries.sum()  # half an entry
    axes.stairs(bins.share, edges, fill=True, baseline=least, color="0.78", label="activations")
    for model, look in MODELS.items():
        axes.plot((edges[1:] + edges[:-1]) / 2, bins[model], linewidth=1.5, **look)
    axes.set_yscale("log")
    axes.set_ylim(least, 1)
    axes.set_xlim(edges[0], edges[-1])


def _apart(distances: pd.DataFrame) -> str:
    """Return a panel's text: the distance of each fit from the histogram."""
    rows: Any = distances.itertuples()
    said = ["distance"] * bool(len(distances))
    for row in rows:
        between = "" if np.isnan(row.low) else f" ({row.low:.3f}–{row.high:.3f})"
        said.append(f"{row.model.capitalize()} {row.mean:.3f}{between}")
    return "\n".join(said)


@mpl.rc_context(LOOK)
def step_times(times: pd.DataFrame, label: str, base: str | None, title: str = "") -> Figure:
    """Draw a step's parts as stacked bars in the order of `times`, labelled by column `place`.

    `times` is a table of `papers.dct.sparsity.times`; `label` names the axis of places. Raise
    `NothingToDraw` without numbers.
    """
    shown = times.dropna(subset=["iteration_s"])
    if shown.empty:
        raise NothingToDraw("no method has a number for iteration_s")
    figure = sheet(title, 4.4, max(5.0, 1.2 + 0.95 * len(shown)))
    axes = figure.subplots()
    places, below = np.arange(len(shown)), np.zeros(len(shown))
    for part, (name, color) in PARTS.items():
        axes.bar(places, shown[part], 0.62, below, label=name, facecolor=color, **BARS)
        below = below + shown[part].to_numpy()
    whole = shown.iteration_s.to_numpy()
    error = _error(shown.iteration_s, shown.iteration_s_low, shown.iteration_s_high)
    look: dict[str, Any] = {"fmt": "D", "color": "black", "ms": 5, "capsize": 3, "label": "step"}
    axes.errorbar(places, whole, error, **look)
    tops = np.maximum(below, whole + error[1])
    for place, top, change in zip(places, tops, shown.change, strict=True):
        text = "" if np.isnan(change) or change == 0 else f"{100 * change:+.3g} %"
        axes.annotate(text, (place, top), (0, 4), textcoords="offset points", ha="center")
    axes.set_xticks(places, list(shown.place), fontsize=9)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.1)
    axes.set_xlabel(label + (f"; above the bars: against {base}" if base else ""))
    axes.set_ylabel("mean time of a step (emulated s)")
    return legend(figure, axes)


@mpl.rc_context(LOOK)
def losses(own: Tables, against: Tables, base: str | None, title: str = "") -> Figure:
    """Draw training loss over steps, a line per method.

    If `against` has tables, draw percent over the loss of `base` in a panel below. Tables, by
    method, have columns step, value, low, high. Raise NothingToDraw without any loss.
    """
    if all(table.value.isna().all() for table in own.values()):
        raise NothingToDraw("no method has a number for loss")
    shown = [own, against] if against else [own]
    figure = sheet(title, 1.3 + 2.7 * len(shown))
    rows = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    looks = styles(own)
    for axes, tables in zip(rows, shown, strict=True):
        for place, (method, table) in enumerate(tables.items()):
            _line(axes, table, looks[method], method, place)
    rows[0].set_ylabel("training loss")
    if against:
        rows[1].axhline(0, color="0.25", linewidth=1, linestyle="--")
        rows[1].set_ylabel(f"training loss, %\nover {base}'s")
    rows[-1].set_xlim(left=0)
    rows[-1].set_xlabel("step")
    return legend(figure, rows[0])


@mpl.rc_context(LOOK)
def quality_sparsity(metrics: Mapping[str, Tables], title: str = "") -> Figure:
    """Draw quality over sparsity: a row of panels per metric, a column per setting.

    A panel has a line per family. `metrics` has tables by axis label and setting, with columns
    family, density, value, low, high. Raise NothingToDraw if all are empty.
    """
    found = {label: {at: rows for at, rows in tables.items() if len(rows)}
             for label, tables in metrics.items()}  # fmt: skip
    found = {label: tables for label, tables in found.items() if tables}
    if not found:
        raise NothingToDraw("no method has a number for a metric")
    settings = list(dict.fromkeys(at for tables in found.values() for at in tables))
    width_in = max(5.5, 1.2 + 3.0 * len(settings))
    figure = sheet(title, 1.2 + 2.5 * len(found), width_in)
    panels = figure.subplots(len(found), len(settings), sharey="row", sharex=True, squeeze=False)
    whole = pd.concat([rows for tables in found.values() for rows in tables.values()])
    densities = sorted(whole.density.unique(), reverse=True)
    looks = styles(whole.family)
    entries: dict[str, Any] = {}
    for row, (label, tables) in zip(panels, found.items(), strict=True):
        for axes, at in zip(row, settings, strict=True):
            if "over" in label:
                axes.axhline(0, color="0.25", linewidth=1, linestyle="--")
            for family, line in tables.get(at, whole.iloc[:0]).groupby("family"):
                rows = line.sort_values("density", ascending=False)
                places = [densities.index(density) for density in rows.density]
                error = _error(rows.value, rows.low, rows.high)
                look = of_line(looks[str(family)]) | {"capsize": 3, "markersize": 6}
                entries[str(family)] = axes.errorbar(places, rows.value, error, **look)
        row[0].set_ylabel(label)
    for axes, at in zip(panels[0], settings, strict=True):
        axes.set_title(at, fontsize=10)
    for axes in panels[-1]:
        said = [f"{100 * (1 - density):.4g}" for density in densities]
        axes.set_xticks(range(len(densities)), said)
        axes.set_xlabel("sparsity sent, 1 − density (%)")
    return legend_of(figure, entries)


def _error(value: pd.Series, low: pd.Series, high: pd.Series) -> np.ndarray:
    """Return the lengths of error bars below and above `value`, [2, n]; 0 without an interval."""
    return np.nan_to_num(np.clip([value - low, high - value], 0, None))


def _line(
    axes: Axes, table: pd.DataFrame, style: Style, label: str | None = None, place: int = 0
) -> None:
    """Draw a line and its interval; `place` shifts its markers, so that equal lines show."""
    every = (place % 4 * MARKS / 4, MARKS)
    look = of_line(style) | {"markersize": 4.5, "linewidth": 1.3, "markevery": every}
    axes.plot(table.step, table.value, label=label, **look)
    within = table.dropna(subset=["low"])
    axes.fill_between(within.step, within.low, within.high, color=style.color, alpha=0.15, lw=0)


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
