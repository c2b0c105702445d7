"""Plot loss, step time and quality against sparsity and the life-span of thresholds."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.figures.styles import BLUE, ORANGE, of_line, styles
from harness.reporting.figures.theme import LOOK, NothingToDraw, legend, legend_of, sheet

PARTS = {
    "compute_s": ("compute", "0.75"),
    "compress_s": ("compress", ORANGE),
    "exposed_s": ("exposed communication", BLUE),
}
EVERY = 4  # points have a marker, shifted for each line so that equal lines show
Tables = Mapping[str, pd.DataFrame]  # by method or setting


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
        look: Any = {"facecolor": color, "edgecolor": "white", "linewidth": 0.5}
        axes.bar(places, shown[part], 0.62, below, label=name, **look)
        below = below + shown[part].to_numpy()
    whole = shown.iteration_s.to_numpy()
    low, high = (np.nan_to_num(shown[f"iteration_s_{end}"], nan=0.0) for end in ("low", "high"))
    error = [np.where(low > 0, whole - low, 0), np.where(high > 0, high - whole, 0)]
    axes.errorbar(
        places, whole, np.clip(error, 0, None), fmt="D", color="black", ms=5, capsize=3,
        label="step",
    )  # fmt: skip
    rows: Any = zip(places, np.maximum(below, np.maximum(high, whole)), shown.change, strict=True)
    for place, top, change in rows:
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
            look = of_line(looks[method]) | {"markevery": (place % EVERY, EVERY)}
            axes.plot(table.step, table.value, label=method, ms=5, lw=1.3, **look)
            near = table.dropna(subset=["low"])
            axes.fill_between(near.step, near.low, near.high, color=look["color"], alpha=0.15, lw=0)
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
                entries[str(family)] = _line(axes, line, densities, of_line(looks[str(family)]))
        row[0].set_ylabel(label)
    for axes, at in zip(panels[0], settings, strict=True):
        axes.set_title(at, fontsize=10)
    for axes in panels[-1]:
        said = [f"{100 * (1 - density):.4g}" for density in densities]
        axes.set_xticks(range(len(densities)), said)
        axes.set_xlabel("sparsity sent, 1 − density (%)")
    return legend_of(figure, entries)


def _line(axes: Axes, rows: pd.DataFrame, densities: list[float], look: dict[str, Any]) -> Any:
    """Draw values at the places of their densities, with error bars; return the artist."""
    rows = rows.sort_values("density", ascending=False)
    places = [densities.index(density) for density in rows.density]
    below, above = ((rows.value - rows.low).fillna(0), (rows.high - rows.value).fillna(0))
    error = np.clip([below, above], 0, None)
    drawn = axes.errorbar(places, rows.value, error, capsize=3, markersize=6, **look)
    return drawn
