"""Figure of when one step of each method computes, compresses and sends, from timeline.csv."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.figures.styles import Style, styles
from harness.reporting.figures.theme import LOOK, NothingToDraw, sheet

LANES = {"compute": ("forward", "backward"), "compress": ("compress",), "send": ("communicate",)}
PANEL_IN, FRAME_IN = 0.95, 1.1
FAR = 3  # a step longer than the second longest by this factor is cut
TITLE_LETTERS = 80
LEAST_NAMED = 0.018  # share of the width; a narrower bar has no room for its number
FORWARD, BACKWARD = "0.6", "0.85"


@mpl.rc_context(LOOK)
def one_step(spans: Mapping[str, pd.DataFrame], title: str = "") -> Figure:
    """Plot one step in a panel per method, the longest step first.

    `spans` maps a method to the timeline rows of one rank and step. Numbers are those of buckets. A
    dashed line marks the end of computation, a solid one the end of the step. Raise NothingToDraw
    if no method has rows.
    """
    known = {method: _from_zero(rows) for method, rows in spans.items() if len(rows)}
    if not known:
        raise NothingToDraw("no run has a timeline.csv with a step in it")
    ends = {method: float(rows.end_s.max()) for method, rows in known.items()}
    order = sorted(ends, key=lambda method: (-ends[method], method))
    shown_s = _shown(sorted(ends.values()))
    figure = sheet(fill(title, TITLE_LETTERS), FRAME_IN + PANEL_IN * len(order))
    panels = figure.subplots(len(order), 1, sharex=True, squeeze=False)[:, 0]
    looks = styles(order)
    for axes, method in zip(panels, order, strict=True):
        _panel(axes, known[method], looks[method], shown_s)
        _titled(axes, method, known[method], ends[method], shown_s)
    panels[0].set_xlim(0, 1.02 * shown_s)
    panels[-1].set_xlabel("time in the step (emulated s)")
    return figure


def _from_zero(rows: pd.DataFrame) -> pd.DataFrame:
    began_s = rows.start_s[rows.kind == "forward"].min()
    return rows.assign(start_s=rows.start_s - began_s, end_s=rows.end_s - began_s)


def _shown(ends: list[float]) -> float:
    """Return the end of the time axis in seconds; a step far longer than all others is cut."""
    if len(ends) > 1 and ends[-1] > FAR * ends[-2]:
        return 1.2 * ends[-2]
    return ends[-1]


def _panel(axes: Axes, rows: pd.DataFrame, style: Style, shown_s: float) -> None:
    fills: dict[str, Any] = {
        "forward": {"facecolor": FORWARD},
        "backward": {"facecolor": BACKWARD},
        "compress": {"facecolor": "white", "hatch": "////", "edgecolor": style.color},
        "communicate": {"facecolor": style.color},
    }
    for lane, kinds in enumerate(LANES.values()):
        spans: Any = rows[rows.kind.isin(kinds)].itertuples()
        for row in spans:
            look = {"edgecolor": "white", "linewidth": 0.5} | fills[str(row.kind)]
            width_s = row.end_s - row.start_s
            axes.barh(lane, width_s, 0.8, row.start_s, clip_on=True, **look)
            middle_s = row.start_s + width_s / 2
            if row.bucket >= 0 and width_s > LEAST_NAMED * shown_s and middle_s < shown_s:
                dark = row.kind == "communicate"
                axes.text(
                    middle_s, lane, str(row.bucket + 1), ha="center", va="center", fontsize=7,
                    color="white" if dark else "black",
                )  # fmt: skip
    axes.axvline(_computed_s(rows), color="0.25", linewidth=1, linestyle=(0, (4, 2)))
    axes.axvline(rows.end_s.max(), color="0.25", linewidth=1)
    axes.set_yticks(range(len(LANES)), list(LANES), fontsize=8)
    axes.set_ylim(len(LANES) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _titled(axes: Axes, method: str, rows: pd.DataFrame, end_s: float, shown_s: float) -> None:
    said = f"{method}: {end_s:.3g} s, of which {end_s - _computed_s(rows):.2g} after computation"
    if end_s > shown_s:
        said += " (cut)"
    axes.set_title(said, fontsize=8.5, loc="left", pad=2)


def _computed_s(rows: pd.DataFrame) -> float:
    return float(rows.end_s[rows.kind == "backward"].max())
