"""The first figure of a report: each method's time to the target, also if it is never reached."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.analysis.decision import Decision, MethodStanding, factor
from harness.reporting.analysis.grid import figure as number
from harness.reporting.figures.styles import Style, of_bar, of_point, styles
from harness.reporting.figures.theme import LOOK, NothingToDraw, logarithmic, sheet, spans_decades

ROW_IN, FRAME_IN = 0.36, 1.5
GAP = 0.9  # in rows, between methods that reach the target and others
ROOM = 1.08  # length of the axis over the longest bar, so that an arrow fits


@mpl.rc_context(LOOK)
def time_to_target(decided: Decision, title: str = "") -> Figure:
    """Plot each method's mean time to the target: bars, or points if times span decades.

    Hollow marks are lower bounds (in the rows below), incomplete methods, and times that other
    programs may have lengthened. Oracles are left out, as nobody can choose them. Raise
    NothingToDraw if there is no target or no time.
    """
    shown = [each for each in decided.standings if not each.oracle and each.time_s.mean > 0]
    if not decided.decides or not shown:
        raise NothingToDraw("no target was set that an evaluation could meet")
    apart = any(_is_filled(each) for each in shown)
    rows = [at + GAP * (apart and not _is_filled(each)) for at, each in enumerate(shown)]
    figure = sheet(title, FRAME_IN + ROW_IN * (max(rows) + 1))
    axes = figure.subplots()
    looks = styles(each.method for each in decided.standings)
    times = [each.time_s.mean for each in shown]
    far = spans_decades(times)
    if far:
        logarithmic(axes.xaxis, min(times), max(times))
    draw = _point if far else _bar
    for place, each in zip(rows, shown, strict=True):
        draw(axes, place, each, looks[each.method])
        _said(axes, place, each)
    _frame(axes, rows, shown, times, far)
    metric = decided.metric.replace("_", " ")
    axes.set_xlabel(f"time to {metric} {decided.target:g} (emulated s)")
    return figure


def _is_filled(standing: MethodStanding) -> bool:
    """Return True if the time is a mean over all seeds that may be compared with other methods."""
    return standing.always and standing.complete


def _is_hollow(standing: MethodStanding) -> bool:
    """Return True if the time is a bound, lacks seeds, or was lengthened by other programs."""
    return not _is_filled(standing) or standing.late_s > 0


def _bar(axes: Axes, place: float, each: MethodStanding, style: Style) -> None:
    look: dict[str, Any] = of_bar(style)
    if _is_hollow(each):
        look |= {"facecolor": "none", "edgecolor": style.color, "linewidth": 1.2, "hatch": ""}
        look |= {"linestyle": "-" if _is_filled(each) else (0, (3, 2))}
    axes.barh(place, each.time_s.mean, 0.62, **look)
    _interval(axes, place, each, "0.25")


def _point(axes: Axes, place: float, each: MethodStanding, style: Style) -> None:
    look = of_point(style)
    if _is_hollow(each):
        look |= {"markerfacecolor": "white"}
    axes.plot(each.time_s.mean, place, markersize=8, **look)
    _interval(axes, place, each, style.color)


def _interval(axes: Axes, place: float, each: MethodStanding, color: str) -> None:
    mean, low, high = each.time_s
    if pd.notna(low):
        error = [[max(0.0, mean - low)], [max(0.0, high - mean)]]
        axes.errorbar(mean, place, xerr=error, color=color, capsize=3, linestyle="none")


def _said(axes: Axes, place: float, each: MethodStanding) -> None:
    """Write the row's text right of the panel; draw an arrow if the time is a lower bound."""
    if not each.always:
        end = (each.time_s.mean, place)
        axes.annotate("→", end, (4, 0), textcoords="offset points", va="center", fontsize=13)
    beside = axes.get_yaxis_transform()
    axes.text(1.02, place, _words(each), transform=beside, va="center", fontsize=9)


def _words(each: MethodStanding) -> str:
    said = f"{number(each.time_s.mean)} s"
    if each.always:
        over = each.over_first
        if over is None or not over.seeds:
            return said
        ends = "" if pd.isna(over.low) else f" ({factor(over.low)} to {factor(over.high)})"
        seeds = "" if each.complete else f", incomplete: {over.seeds} seed{'s' * (over.seeds > 1)}"
        return f"{said}, × {factor(over.mean)}{ends}{seeds}"
    if each.reached:
        return f"> {said}, in {each.reached} of {each.runs} runs"
    return f"> {said}, {'diverged' if each.diverged else 'never'}"


def _frame(
    axes: Axes,
    rows: Sequence[float],
    shown: Sequence[MethodStanding],
    times: Sequence[float],
    far: bool,
) -> None:
    axes.set_yticks(rows, [each.method for each in shown])
    axes.set_ylim(max(rows) + 0.6, -0.6)
    axes.grid(axis="y", visible=False)
    tips = [each.time_s.high if pd.notna(each.time_s.high) else each.time_s.mean for each in shown]
    if far:
        axes.set_xlim(min(times) / 1.5, max(tips) * (max(tips) / min(times)) ** (ROOM - 1))
    else:
        axes.set_xlim(0, ROOM * max(tips))
    cut = next((at for at, each in zip(rows, shown, strict=True) if not _is_filled(each)), 0.0)
    if cut >= 1:
        axes.axhline(cut - (1 + GAP) / 2, color="0.6", linewidth=0.8)
