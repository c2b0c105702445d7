"""Which colour, marker, line and hatch a method has: by its name alone, whatever that is.

A method looks the same in every figure, unless another of the figure would look like it. Without
colour, markers tell them apart.
"""

from collections.abc import Iterable
from math import log10
from typing import Any, NamedTuple
from zlib import crc32

from harness.config import label

MOST_TOGETHER = 9  # methods in one panel


class Style(NamedTuple):
    """Colour, marker, hatch and line of a method."""

    color: str
    marker: Any
    hatch: str
    linestyle: Any = "-"
    hollow: bool = False


# Colours of Okabe & Ito (2008) and Tol (2021), safe for colour-blind readers, none near white.
BLUE, ORANGE, GREEN, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
RED, INDIGO, WINE, OLIVE = "#D55E00", "#332288", "#882255", "#999933"
BASELINE = Style("black", "o", "")
COLORS = (RED, INDIGO, GREEN, WINE, ORANGE, BLUE, PINK, OLIVE, SKY)
MARKERS: tuple[Any, ...] = ("s", "^", "D", "v", "X", "P", "*", "h", "p", "d", "<", ">", "8", "H")
MARKERS += ((4, 1, 0), (6, 1, 0), (5, 0, 180))
HATCHES = (
    "//",
    "\\\\",
    "xx",
    "..",
    "--",
    "||",
    "++",
    "/.",
    "\\.",
    "-/",
    "|.",
    "-.",
    "x.",
    "+.",
    "|/",
)
DOTTED, DASHED, DASH_DOT = (0, (1, 1.2)), (0, (4, 1.6)), (0, (5, 1.2, 1, 1.2))
LINES: tuple[Any, ...] = ("-", DASHED, DASH_DOT, (0, (8, 2)))
OCTAVE = 6  # densities of a decade that look unlike
LOOKS = 2 * len(MARKERS)  # that differ without colour


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Style of each method; of two that would look alike without colour one gives way."""
    chosen: dict[str, Style] = {}
    for method in sorted(set(methods)):
        taken = {(each.marker, each.hollow) for each in chosen.values()}
        known = [style(method, turn) for turn in range(LOOKS * len(COLORS))]
        apart = (each for each in known if (each.marker, each.hollow) not in taken)
        unlike = (each for each in known if each not in chosen.values())
        chosen[method] = next(apart, None) or next(unlike)
    return chosen


def style(method: str, turn: int = 0) -> Style:
    """Style of a name alone, the one `turn` places on."""
    if method == label.ALLREDUCE and not turn:
        return BASELINE
    at = crc32(method.encode()) + turn
    look, color = at % LOOKS, at // LOOKS % len(COLORS)
    marker, hollow = MARKERS[look // 2], bool(look % 2)
    hatch, line = HATCHES[at // 7 % len(HATCHES)], LINES[at // 5 % len(LINES)]
    return Style(COLORS[(color + look) % len(COLORS)], marker, hatch, line, hollow)


def of_density(density: float) -> Style:
    """Style for thresholds that keep `density`, in (0, 1]: solid, coloured by its logarithm."""
    place = round(OCTAVE * log10(1 / density))
    return Style(COLORS[place % len(COLORS)], MARKERS[place % len(MARKERS)], "")


def of_line(chosen: Style) -> dict[str, Any]:
    """Keyword arguments for matplotlib's plot."""
    inside = "white" if chosen.hollow else chosen.color
    return {
        "color": chosen.color,
        "marker": chosen.marker,
        "linestyle": chosen.linestyle,
        "markerfacecolor": inside,
    }


def of_point(chosen: Style) -> dict[str, Any]:
    """Keyword arguments for matplotlib's plot of single points."""
    return of_line(chosen) | {"linestyle": "none"}


def of_bar(chosen: Style) -> dict[str, Any]:
    """Keyword arguments for matplotlib's bars: a hollow method is white with coloured hatches."""
    inside, edge = ("white", chosen.color) if chosen.hollow else (chosen.color, "white")
    width = 1.0 if chosen.hollow else 0.5
    return {"facecolor": inside, "edgecolor": edge, "hatch": chosen.hatch, "linewidth": width}


def panels(methods: Iterable[str], baseline: str = label.ALLREDUCE) -> list[list[str]]:
    """`methods` in groups that a panel can show, the baseline in each."""
    known = sorted(set(methods))
    if len(known) <= MOST_TOGETHER:
        return [known]
    others = [method for method in known if method != baseline]
    room = MOST_TOGETHER - 1
    cut = [others[at : at + room] for at in range(0, len(others), room)]
    first = [baseline] if baseline in known else []
    return [first + group for group in cut]
