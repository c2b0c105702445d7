"""Colour, marker, line and hatch of each method, from its name or from a style file.

A method looks the same in every figure of a page, which `of_page` opens. Its style follows from its
name, unless another method of the page has that colour or marker. Two methods share a colour only
after all colours are taken; they then differ in line and hatch. In black and white, markers tell
methods apart.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple
from zlib import crc32

from harness.config import label
from harness.reporting.figures import theme
from harness.reporting.figures.style_file import ReportStyle

MOST_TOGETHER = 9  # methods in one panel


class Style(NamedTuple):
    """Colour, marker, hatch and line of a method."""

    color: str
    marker: Any
    hatch: str = ""
    linestyle: Any = "-"
    hollow: bool = False


# Colours of Okabe & Ito (2008), safe for colour-blind readers, and four more. Each differs
# clearly from every other, from the baseline's black, from the planned rate's greys and from white.
BLUE, ORANGE, GREEN, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
RED, OLIVE, PURPLE, BROWN, WINE = "#D55E00", "#999933", "#7B3FB5", "#8A5A2B", "#A8174F"
LIME = "#74B816"
BASELINE = Style("black", "o")  # of the baseline alone
MAIN = (BLUE, RED, GREEN, ORANGE, PURPLE, WINE)  # used first, as they differ most
COLORS = (*MAIN, SKY, OLIVE, PINK, BROWN, LIME)
UNLIKE: tuple[Any, ...] = ("s", "^", "D", "v", "X", "P", "*")  # markers used first
MARKERS = (*UNLIKE, "d", "<", ">", (4, 1, 0), (6, 1, 0), "p", (5, 0, 180), "h", "8", "H")
SHAPES = [(marker, hollow) for hollow in (False, True) for marker in MARKERS]
DASHED, DASH_DOT = (0, (4, 1.6)), (0, (5, 1.2, 1, 1.2))
LINES: tuple[Any, ...] = ("-", DASHED, DASH_DOT, (0, (8, 2)))  # tell methods of one colour apart
HATCHES = ("", "//", "xx", "..", "++", "--", "\\\\", "||")  # tell their bars apart


class Page(NamedTuple):
    """Style of each method of a page, and its place in legends, by label."""

    styles: Mapping[str, Style] = {}
    order: Mapping[str, int] = {}


PLAIN = ReportStyle()
_page: ContextVar[Page] = ContextVar("looks of a page", default=Page())  # noqa: B039  read only
_chosen: ContextVar[ReportStyle] = ContextVar("style file of a report", default=PLAIN)


@contextmanager
def of_report(chosen: ReportStyle) -> Iterator[None]:
    """Context manager: apply a style file to all figures drawn inside."""
    token = _chosen.set(chosen)
    try:
        with theme.sheets(chosen.width_in, chosen.title):
            yield
    finally:
        _chosen.reset(token)


@contextmanager
def of_page(names: Mapping[str, str]) -> Iterator[None]:
    """Context manager: give each method one style in all figures drawn inside.

    `names` maps the label of each method to its name. The style follows from the name; the style
    file may set its colour. Inside another page this changes nothing.
    """
    of_names, colors = styles(names.values()), _chosen.get().colours
    page = {said: of_names[name] for said, name in names.items()}
    for said, name in names.items():
        if name in colors:
            page[said] = page[said]._replace(color=colors[name], linestyle="-", hatch="")
    order = {said: list(_chosen.get().order).index(name) for said, name in names.items()
             if name in _chosen.get().order}  # fmt: skip
    token = _page.set(_page.get() if _page.get().styles else Page(page, order))
    try:
        yield
    finally:
        _page.reset(token)


def ordered(methods: Iterable[str]) -> list[str]:
    """Return `methods` as the style file orders them; the others follow by name."""
    order = _page.get().order
    return sorted(set(methods), key=lambda one: (one not in order, order.get(one, 0), one))


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Return the style of each method: that of the page, or one derived from its name.

    If another method already has the derived colour or marker, the least used one replaces it.
    """
    wanted = sorted(set(methods))
    chosen = dict(_page.get().styles)
    for method in wanted:
        if method in chosen:
            continue
        own = style(method)
        if own != BASELINE:
            colored = Counter(each.color for each in chosen.values())
            marked = Counter((each.marker, each.hollow) for each in chosen.values())
            own = _free(method, colored, marked)
        chosen[method] = own
    return {method: chosen[method] for method in wanted}


def style(method: str) -> Style:
    """Return the style that follows from a method's name alone."""
    return BASELINE if method == label.ALLREDUCE else _free(method, Counter(), Counter())


def _free(method: str, colored: Counter[str], marked: Counter[Any]) -> Style:
    """Return the least used colour and marker; the name decides between equally used ones."""
    at = crc32(method.encode())
    colors = _turned(COLORS, len(MAIN), at)
    color = min(colors, key=lambda each: colored[each])
    shapes = _turned(SHAPES, len(UNLIKE), at // len(MAIN))
    marker, hollow = min(shapes, key=lambda each: marked[each])
    again = colored[color]  # 0 if no other method has the colour
    line, hatch = LINES[again % len(LINES)], HATCHES[again % len(HATCHES)]
    return Style(color, marker, hatch, line, hollow)


def _turned(known: Sequence[Any], main: int, by: int) -> list[Any]:
    """Return `known` with its first `main` items rotated by `by` places."""
    at = by % main
    return [*known[at:main], *known[:at], *known[main:]]


def of_line(chosen: Style) -> dict[str, Any]:
    """Return keyword arguments with which matplotlib's `plot` draws a line in style `chosen`."""
    inside = "white" if chosen.hollow else chosen.color
    return {
        "color": chosen.color,
        "marker": chosen.marker,
        "linestyle": chosen.linestyle,
        "markerfacecolor": inside,
    }


def of_point(chosen: Style) -> dict[str, Any]:
    """Return keyword arguments for matplotlib's `plot` of points without a line."""
    return of_line(chosen) | {"linestyle": "none"}


def of_bar(chosen: Style) -> dict[str, Any]:
    """Return keyword arguments for matplotlib's bars; hatched only if the colour is shared."""
    look = {"facecolor": chosen.color, "edgecolor": "white", "linewidth": 0.5}
    return look | {"hatch": chosen.hatch}


def panels(methods: Iterable[str]) -> list[list[str]]:
    """Split `methods` into groups that fit one panel each; every group has the baseline."""
    known = ordered(methods)
    if len(known) <= MOST_TOGETHER:
        return [known]
    looks = styles(known)
    first = [method for method in known if looks[method] == BASELINE]
    others = [method for method in known if method not in first]
    room = MOST_TOGETHER - 1
    return [first + others[at : at + room] for at in range(0, len(others), room)]
