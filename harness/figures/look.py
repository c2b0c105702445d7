"""How every figure looks: one house style, methods told apart without colour, saved twice."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_IN = 7.0
LOOK: Any = {
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.88",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text, as journals ask
}
SHEET_LETTERS = 96  # of a legend, side by side


class NothingToDraw(ValueError):
    """The table has no number for the figure; an empty figure would say less."""


class Style(NamedTuple):
    """How a method looks in every figure; markers and hatches tell it apart without colour."""

    color: str
    marker: str
    hatch: str
    linestyle: str = "-"


BASELINE = Style("black", "o", "")
# Colours of Okabe & Ito (2008) and Tol (2021), safe for colour-blind readers, none near white.
# The named methods own the first styles; every other name finds its own among the last.
STYLES = {
    "topk_0.1": Style("#0072B2", "s", "//"),
    "topk_0.001": Style("#E69F00", "^", "\\\\"),
    "dc2_da2": Style("#009E73", "D", "xx"),
    "dc2_da3": Style("#CC79A7", "v", ".."),
    "dc2_da4": Style("#56B4E9", "P", "--"),
    "dc2_da5": Style("#D55E00", "X", "||"),
    "randomk_0.1": Style("#332288", "<", "++"),
    "randomk_0.001": Style("#882255", ">", "o"),
    "netsense": Style("#999933", "*", "*"),
}
OTHER_STYLES = [
    Style("#D55E00", "p", "/.", "--"),
    Style("#332288", "d", "\\.", "--"),
    Style("#009E73", "h", "-/", "--"),
    Style("#882255", "8", "|.", "--"),
    Style("#E69F00", "H", "-.", "--"),
    Style("#0072B2", "s", "x.", "--"),
    Style("#CC79A7", "^", "+.", "--"),
    Style("#999933", "D", "|/", "--"),
    Style("#56B4E9", "v", "o-", "--"),
]


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Style of each method, by its name; other names share one only beyond nine in a figure."""
    chosen: dict[str, Style] = {}
    for method in sorted(set(methods)):
        place = crc32(method.encode())
        near = [OTHER_STYLES[(place + step) % 9] for step in range(9)]
        free = next((style for style in near if style not in chosen.values()), near[0])
        chosen[method] = BASELINE if method == "allreduce" else STYLES.get(method, free)
    return chosen


def sheet(title: str, height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """An empty figure, as wide as a page's text unless told."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure


def legend(figure: Figure, axes: Axes) -> Figure:
    """Put the legend of `axes` below the figure, in as few rows as it takes."""
    handles, labels = axes.get_legend_handles_labels()
    widths = [len(label) + 6 for label in labels]  # in letters, with the handle
    one_row = sum(widths) <= SHEET_LETTERS
    columns = len(labels) if one_row else max(1, min(4, SHEET_LETTERS // max(widths)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    return figure


@mpl.rc_context(LOOK)
def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path`.png and `path`.pdf; a dot inside the name stays."""
    files = [path.with_name(path.name + suffix) for suffix in (".png", ".pdf")]
    path.parent.mkdir(parents=True, exist_ok=True)
    for file in files:
        figure.savefig(file, dpi=150)
    return files
