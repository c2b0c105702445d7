"""Which colour, marker, line and hatch a method has: the same in every figure, by its name alone.

Methods that differ in one respect look alike but for it: Random-k is Top-k with hollow markers,
and a variant has the colour and marker of what it varies. Without colour, markers tell them apart.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

MOST_TOGETHER = 9  # methods in one panel


class Style(NamedTuple):
    """How a method looks."""

    color: str
    marker: Any
    hatch: str
    linestyle: Any = "-"
    hollow: bool = False


# Colours of Okabe & Ito (2008) and Tol (2021), safe for colour-blind readers, none near white.
BLUE, ORANGE, GREEN, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
RED, INDIGO, WINE, OLIVE = "#D55E00", "#332288", "#882255", "#999933"
BASELINE = Style("black", "o", "")
STYLES = {
    "allreduce": BASELINE,
    "topk_1": Style("0.35", "o", "|o"),
    "topk_0.5": Style(OLIVE, "X", "+|"),
    "topk_0.25": Style(GREEN, "v", "++"),
    "topk_0.1": Style(BLUE, "s", "//"),
    "topk_0.05": Style(ORANGE, "D", "-o"),
    "topk_0.03": Style(SKY, "p", "/-"),
    "topk_0.02": Style(PINK, "P", "O"),
    "topk_0.01": Style(INDIGO, "h", "/|"),
    "topk_0.005": Style(WINE, "^", "\\|"),
    "topk_0.003": Style(OLIVE, ">", "\\-"),
    "topk_0.001": Style(ORANGE, "^", "\\\\"),
    "topk_0.0005": Style(RED, "<", "\\."),
    "dct_dp_l1": Style(RED, "p", "*."),
    "dct_dp_l100": Style(SKY, "d", "x/"),
    "dct_dp_l1000": Style(GREEN, "^", "*-"),
    "dct_dp_l10000": Style(INDIGO, "<", "*|"),
    "dc2_da1": Style(INDIGO, "8", "o"),
    "dc2_da2": Style(GREEN, "D", "xx"),
    "dc2_da3": Style(PINK, "v", ".."),
    "dc2_da4": Style(SKY, "P", "--"),
    "dc2_da5": Style(RED, "X", "||"),
    "netsense": Style(OLIVE, "*", "*"),
    "netsense_bdp": Style(RED, "d", "x."),
    "oracle": Style("0.45", "H", "-|"),
    "pace": Style(WINE, (4, 1, 0), "+."),
    "hide": Style(INDIGO, (6, 1, 0), "o."),
    "kimad": Style(BLUE, "d", "/."),
    "kimad_overlap": Style(BLUE, "8", "/o"),
    "deco": Style(PINK, (3, 1, 0), "-."),
    "gravac": Style(ORANGE, (4, 1, 45), "|."),
    "accordion": Style(SKY, (5, 0, 180), "+-"),
    "ccr_rule": Style(PINK, (5, 1, 180), "x-"),
}
COLORS = (RED, INDIGO, GREEN, WINE, ORANGE, BLUE, PINK, OLIVE, SKY)
MARKERS = ("p", "d", "h", "8", "H", "s", "^", "D", "v", "<", ">", "P", "X")
HATCHES = ("/.", "\\.", "-/", "|.", "-.", "x.", "+.", "|/", "o-")
DOTTED, DASHED, DASH_DOT = (0, (1, 1.2)), (0, (4, 1.6)), (0, (5, 1.2, 1, 1.2))
LONG = (0, (8, 2))
# What a name says it varies, and how that looks: line, hollow.
PREFIXES: dict[str, tuple[str, Any, bool]] = {
    "dc2_fed_randomk_": ("dc2_", DASH_DOT, True),
    "dc2_randomk_": ("dc2_", DASHED, True),
    "dc2_fed_": ("dc2_", DOTTED, False),
    "randomk_": ("topk_", DASHED, True),
    # Of DCT a density has one look, that of Top-k, wherever what is kept of it crosses.
    "dct_dp_0": ("topk_0", DASHED, False),
    "dct_dp_1": ("topk_1", DASHED, False),
    "dct_mp_0": ("topk_0", DOTTED, False),
    "dct_mp_1": ("topk_1", DOTTED, False),
    "dct_mp_laplace_": ("topk_", DASH_DOT, True),
    "dct_hybrid_0": ("topk_0", DASH_DOT, False),
    "dct_hybrid_1": ("topk_1", DASH_DOT, False),
    "sketch_": ("topk_", LONG, True),
    "topk_grad_0": ("topk_0", LONG, False),
    "topk_grad_1": ("topk_1", LONG, False),
}
SUFFIXES: dict[str, tuple[Any, bool]] = {
    "_int64": (DASH_DOT, False),
    "_no_ef": (DOTTED, True),
    "_no_reuse": (DASH_DOT, True),
    "_after_backward": (LONG, False),
    "_sort": (DASHED, True),
    "_ef_True": (LONG, False),
    "_ef_False": (LONG, True),
}


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Style of each method; only of two unknown names that would look alike one gives way."""
    chosen: dict[str, Style] = {}
    for method in sorted(set(methods)):
        known = (style(method, place) for place in range(len(COLORS) * len(MARKERS)))
        chosen[method] = next(each for each in known if each not in chosen.values())
    return chosen


def style(method: str, turn: int = 0) -> Style:
    """Style of a name, the one `turn` places on where it is not one of STYLES."""
    for prefix, (base, line, hollow) in PREFIXES.items():
        if method.startswith(prefix):
            found = style(base + method.removeprefix(prefix), turn)
            return found._replace(linestyle=line, hollow=hollow or found.hollow)
    for suffix, (line, hollow) in SUFFIXES.items():
        if method.endswith(suffix):
            found = style(method.removesuffix(suffix), turn)
            return found._replace(linestyle=line, hollow=hollow)
    if method in STYLES and not turn:
        return STYLES[method]
    at = crc32(method.encode()) + turn
    color, marker = COLORS[at % len(COLORS)], MARKERS[at // len(COLORS) % len(MARKERS)]
    return Style(color, marker, HATCHES[at // 7 % len(HATCHES)], DASHED)


def of_density(density: float) -> Style:
    """Of thresholds that keep `density`: as Top-k's and DCT's methods of it, as a whole line."""
    return style(f"topk_{density:g}")._replace(linestyle="-")


def of_line(chosen: Style) -> dict[str, Any]:
    """For matplotlib's plot."""
    inside = "white" if chosen.hollow else chosen.color
    return {
        "color": chosen.color,
        "marker": chosen.marker,
        "linestyle": chosen.linestyle,
        "markerfacecolor": inside,
    }


def of_point(chosen: Style) -> dict[str, Any]:
    """For matplotlib's plot of single points."""
    return of_line(chosen) | {"linestyle": "none"}


def of_bar(chosen: Style) -> dict[str, Any]:
    """For matplotlib's bars: a hollow method is white with hatches of its colour."""
    inside, edge = ("white", chosen.color) if chosen.hollow else (chosen.color, "white")
    width = 1.0 if chosen.hollow else 0.5
    return {"facecolor": inside, "edgecolor": edge, "hatch": chosen.hatch, "linewidth": width}


def panels(methods: Iterable[str], baseline: str = "allreduce") -> list[list[str]]:
    """`methods` in groups that a panel can show, the baseline in each: filled, then hollow ones."""
    known = sorted(set(methods))
    if len(known) <= MOST_TOGETHER:
        return [known]
    others = [method for method in known if method != baseline]
    groups = [[m for m in others if style(m).hollow is hollow] for hollow in (False, True)]
    room = MOST_TOGETHER - 1
    cut = [group[at : at + room] for group in groups for at in range(0, len(group), room)]
    first = [baseline] if baseline in known else []
    return [first + group for group in cut]
