"""Layout that all figures share: matplotlib settings, sheet size, legend, log axes, and saving."""

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from harness.records.outputs import OutputFolder

WIDTH_IN = 7.0
TITLE_LETTERS_PER_IN = 12.2
OF_THE_USER = ("backend", "backend_fallback")  # matplotlib settings that stay the user's
LOOK: Any = {key: mpl.rcParamsDefault[key] for key in mpl.rcParamsDefault if key not in OF_THE_USER}
LOOK |= {  # on top of matplotlib's defaults; a matplotlibrc has no effect
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.88",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "text.parse_math": False,  # a run's name may contain $
    "pdf.fonttype": 42,  # text stays text, as journals require
    "svg.hashsalt": "gradnet",  # equal figures give equal files
    "svg.fonttype": "none",  # searchable text; the file is a quarter as large
}
TARGET: Any = {"color": "0.25", "linewidth": 1.2, "linestyle": (0, (6, 2, 1, 2)), "zorder": 1.5}
SHEET_LETTERS = 96  # of a legend's row
HANDLE_LETTERS = 10  # width of a legend's line and gaps, in letters
LEGEND_ROWS, LEGEND_ROW_IN = 2, 0.2  # rows that a sheet has room for; height of each further row
_sheets: ContextVar[tuple[float, bool]] = ContextVar("sheets", default=(WIDTH_IN, True))
MOST_POINTS = 400  # of a line; more would not be visible
FINER_THAN_SEEN = re.compile(rb"(\d{2,}\.\d\d)\d+")  # SVG points beyond two decimals
FAR = 8  # an axis whose ends differ by this factor is logarithmic
TIGHT_DECADES = 2.0  # a shorter logarithmic axis has ticks between its powers of ten


class NothingToDraw(ValueError):
    """The table has no number for the figure, so no empty figure is drawn."""


class Drawing(NamedTuple):
    """A figure drawn on demand: `draw` returns it, or raises `NothingToDraw` without data."""

    caption: str
    draw: Callable[[], Figure]


@contextmanager
def sheets(width_in: float | None, title: bool) -> Iterator[None]:
    """Context manager: set the width of all figures inside, and whether they have a title.

    `width_in` replaces the width of a page's text, None keeps it. Other widths scale with it.
    """
    token = _sheets.set((width_in or WIDTH_IN, title))
    try:
        yield
    finally:
        _sheets.reset(token)


def sheet(title: str, height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """Return an empty figure, by default as wide as a page's text; a long title is wrapped."""
    whole_in, has_title = _sheets.get()
    width_in *= whole_in / WIDTH_IN
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    if has_title and title:
        letters = int(width_in * TITLE_LETTERS_PER_IN)
        lines = [textwrap.fill(line, letters) for line in title.split("\n")]
        figure.suptitle("\n".join(lines), fontsize=10)
    return figure


def legend(figure: Figure, axes: Axes) -> Figure:
    """Put the legend of `axes` below the figure, in as few rows as fit its width."""
    handles, labels = axes.get_legend_handles_labels()
    return legend_of(figure, dict(zip(labels, handles, strict=True)))


def legend_of(figure: Figure, handles: Mapping[str, Any]) -> Figure:
    """Put a legend of `handles`, by label, below the figure, in as few rows as fit its width."""
    letters = SHEET_LETTERS * figure.get_figwidth() / WIDTH_IN
    widths = [len(label) + HANDLE_LETTERS for label in handles]
    one_row = sum(widths) <= letters
    columns = len(widths) if one_row else max(1, min(4, int(letters // max(widths))))
    more = max(0, -(-len(widths) // columns) - LEGEND_ROWS)
    figure.set_figheight(figure.get_figheight() + more * LEGEND_ROW_IN)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    return figure


def spans_decades(values: Iterable[float]) -> bool:
    """Return True if positive `values` differ by a factor above FAR, so that a log axis is due."""
    known = [value for value in values if value == value]
    return bool(known) and max(known) > FAR * min(known) > 0


def aim(axes: Axes, target: float | None) -> None:
    """Draw the target as a horizontal line; draw nothing if it is None or NaN."""
    if target is not None and target == target:
        axes.axhline(target, label=f"target {target:g}", **TARGET)


def logarithmic(axis: Axis, low: float, high: float) -> None:
    """Make an axis from `low` to `high` logarithmic, with plain numbers at its ticks."""
    across = axis is axis.axes.xaxis
    set_scale = axis.axes.set_xscale if across else axis.axes.set_yscale
    set_scale("log")
    tight = high < low * 10**TIGHT_DECADES
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if tight else (1,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def thinned(table: pd.DataFrame, column: str, most: int = MOST_POINTS) -> pd.DataFrame:
    """Return at most about `most` rows of `table` whose line through `column` looks the same.

    These are the lowest and highest row of every stretch of rows, and the first and last row.
    """
    if len(table) <= most:
        return table
    values = table[column].reset_index(drop=True).dropna()
    stretch = values.index // -(-2 * len(table) // most)
    of_stretch = values.groupby(stretch)
    kept = {0, len(table) - 1, *of_stretch.idxmin(), *of_stretch.idxmax()}
    return table.iloc[sorted(kept)]


def save(figure: Figure, out: OutputFolder, name: str, pdf: bool = False) -> list[Path]:
    """Write `name`.svg to `out`, and with `pdf` also `name`.pdf; return their paths.

    A PDF embeds its font, which takes longer than drawing the figure.
    """
    paths = [out.write(f"{name}.svg", svg(figure))]
    if pdf:
        with mpl.rc_context(LOOK):
            content = image(figure, "pdf", metadata={"CreationDate": None})
        paths.append(out.write(f"{name}.pdf", content))
    return paths


def image(figure: Figure, kind: str, **options: Any) -> bytes:
    """Return the bytes of a file of type `kind` (png, pdf, ...); `options` are for `savefig`."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, **options)
    return drawn.getvalue()


@mpl.rc_context(LOOK)
def svg(figure: Figure) -> bytes:
    """Return `figure` as SVG with text as text; equal figures give equal bytes."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # "none" would leave an engine that runs once more
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # equal figures stay equal
    return FINER_THAN_SEEN.sub(rb"\1", image(figure, "svg", metadata=nothing))
