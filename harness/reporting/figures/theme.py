"""How every figure looks: one house style, methods told apart without colour, saved twice."""

import io
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

WIDTH_IN = 7.0
TITLE_LETTERS_PER_IN = 11.5
LOOK: Any = {
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.88",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "text.parse_math": False,  # a label is what a run is called, not mathematics
    "pdf.fonttype": 42,  # text stays text, as journals ask
    "svg.hashsalt": "gradnet",  # the same figure is the same file
}
SHEET_LETTERS = 96  # of a legend, side by side
HANDLE_LETTERS = 10  # that a legend's line takes before its label, with the gaps
MOST_VECTOR_BYTES = 150_000  # a larger drawing is shown as pixels
FINER_THAN_SEEN = re.compile(rb"(\d{2,}\.\d\d)\d+")  # of places in an svg, which are points
TIGHT_DECADES = 2.0  # a shorter logarithmic axis has ticks between its powers of ten


class NothingToDraw(ValueError):
    """The table has no number for the figure; an empty figure would say less."""


class Drawing(NamedTuple):
    """A figure that is drawn by calling `draw`, which raises `NothingToDraw` without data."""

    caption: str
    draw: Callable[[], Figure]


class Picture(NamedTuple):
    """A drawing as a page holds it."""

    kind: str  # MIME type
    data: bytes


def sheet(title: str, height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """An empty figure, as wide as a page's text unless told; a long title goes over lines."""
    letters = int(width_in * TITLE_LETTERS_PER_IN)
    lines = [textwrap.fill(line, letters) for line in title.split("\n")]
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    figure.suptitle("\n".join(lines), fontsize=11)
    return figure


def legend(figure: Figure, axes: Axes) -> Figure:
    """Put the legend of `axes` below the figure, in as few rows as it takes."""
    handles, labels = axes.get_legend_handles_labels()
    return legend_of(figure, dict(zip(labels, handles, strict=True)))


def legend_of(figure: Figure, handles: Mapping[str, Any]) -> Figure:
    """Put `handles`, by label, below the figure, in as few rows as its width takes."""
    letters = SHEET_LETTERS * figure.get_figwidth() / WIDTH_IN
    widths = [len(label) + HANDLE_LETTERS for label in handles]
    one_row = sum(widths) <= letters
    columns = len(widths) if one_row else max(1, min(4, int(letters // max(widths))))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    return figure


def logarithmic(axis: Axis, low: float, high: float) -> None:
    """A logarithmic axis from `low` to `high` whose ticks are plain numbers that do not touch."""
    across = axis is axis.axes.xaxis
    set_scale = axis.axes.set_xscale if across else axis.axes.set_yscale
    set_scale("log")
    tight = high < low * 10**TIGHT_DECADES
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if tight else (1,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


@mpl.rc_context(LOOK)
def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path`.png and `path`.pdf; a dot inside the name stays."""
    files = [path.with_name(path.name + suffix) for suffix in (".png", ".pdf")]
    path.parent.mkdir(parents=True, exist_ok=True)
    _settle(figure)
    for file in files:
        figure.savefig(file, dpi=150)
    return files


@mpl.rc_context(LOOK)
def picture(figure: Figure) -> Picture:
    """`figure` for a page: lines as lines, unless there are so many that pixels are smaller."""
    _settle(figure)
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # no date, and no address
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata=nothing)
    lines = FINER_THAN_SEEN.sub(rb"\1", drawn.getvalue())
    if len(lines) <= MOST_VECTOR_BYTES:
        return Picture("image/svg+xml", lines)
    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=150)
    return Picture("image/png", pixels.getvalue())


def _settle(figure: Figure) -> None:
    """Find every place once: solving for them again costs as much as drawing."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # unlike "none" leaves nothing that is drawn for once more
