"""Figure of a run's network: nodes, switches, trunk, what links went through, what competed."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from harness.reporting.figures.layout import ConditionRanges, NetworkLayout, Range, way_of
from harness.reporting.figures.theme import LOOK, sheet
from profiles.base import WAYS

MOST_NODES = 16  # more are drawn as some of them
SHOWN_OF_MANY = 3  # at the top of each side, and the last one
ROW_IN, NODE_IN, SWITCH_IN = 0.56, 1.05, 0.9
LINK_IN, BARE_LINK_IN, LETTER_IN = 2.4, 0.7, 0.062  # a bare link has nothing to say
NOTE_IN, CELL_IN = 0.24, 0.62
SITES = ("white", "0.82", "0.92", "0.72", "0.87", "0.77")  # fills; names tell more sites apart
SMALL: Any = {"fontsize": 7.5, "ha": "center"}
LINE: Any = {"color": "0.25", "linewidth": 1.2, "solid_capstyle": "butt"}


class NodeColumn(NamedTuple):
    """The nodes at one side of the switches, from top to bottom; None: those that are not drawn."""

    rows: list[int | None]
    missing: list[int]


@mpl.rc_context(LOOK)
def network(layout: NetworkLayout, title: str = "") -> Figure:
    """Half of the nodes on each side; of a dumbbell these are its halves."""
    left = layout.left or (layout.nodes + 1) // 2
    few = layout.nodes <= MOST_NODES
    sides = [_side(range(left), few), _side(range(left, layout.nodes), few)]
    link_in, trunk_in = _lengths(layout, sides)
    middle_in = 2 * SWITCH_IN + trunk_in if layout.left else SWITCH_IN
    width_in, rows = 2 * (NODE_IN + link_in) + middle_in, max(len(side.rows) for side in sides)
    notes = _notes(layout)
    below_in = NOTE_IN * (len(notes) + 1) + _matrix_in(layout)
    height_in = ROW_IN * max(rows, 2)
    figure = sheet(title, height_in + below_in + 0.6, width_in + 0.3)
    axes = figure.subplots()
    axes.axis("off")
    axes.set(xlim=(-0.1, width_in + 0.1), ylim=(-below_in, height_in + 0.1), aspect="equal")
    switches = _middle(axes, layout, (NODE_IN + link_in, trunk_in), height_in)
    for side, node_x, to_x in zip(sides, (0.0, width_in - NODE_IN), switches, strict=True):
        from_x = node_x + NODE_IN if node_x == 0 else node_x
        _nodes(axes, layout, side, (node_x, from_x, to_x), height_in)
    _below(axes, layout, notes, width_in)
    return figure


def _side(nodes: Sequence[int], few: bool) -> NodeColumn:
    shown: list[int | None] = list(nodes)
    if few or len(nodes) <= SHOWN_OF_MANY + 1:
        return NodeColumn(shown, [])
    return NodeColumn([*shown[:SHOWN_OF_MANY], None, shown[-1]], list(nodes[SHOWN_OF_MANY:-1]))


def _lengths(layout: NetworkLayout, sides: Sequence[NodeColumn]) -> tuple[float, float]:
    """Inches of links and of the trunk, long enough for what is said of them."""
    said = [
        text
        for side in sides
        for node in side.rows
        for text in (
            _of_many(layout, side.missing, ("→", "←"))
            if node is None
            else _said(layout, str(node), ("→", "←"))
        )
    ]
    longest = max(map(len, said))
    trunk = max(map(len, _said(layout, "trunk", ("→", "←"))))
    link_in = max(LINK_IN, LETTER_IN * longest + 0.1) if longest else BARE_LINK_IN
    return link_in, max(LINK_IN, LETTER_IN * trunk + 0.1)


def _middle(
    axes: Axes, layout: NetworkLayout, place: tuple[float, float], height_in: float
) -> tuple[float, float]:
    """Switches and what joins them: `place` is where they begin and the length of the trunk.

    Returns where links of the left and the right side end.
    """
    x, trunk_in = place
    if not layout.left:
        name = "the network\nthere is" if layout.machines else "switch"
        _box(axes, x, 0.0, SWITCH_IN, height_in, name, "0.95")
        return x, x + SWITCH_IN
    right_x = x + SWITCH_IN + trunk_in
    for at, name in ((x, "left\nswitch"), (right_x, "right\nswitch")):
        _box(axes, at, 0.0, SWITCH_IN, height_in, name, "0.95")
    y = height_in / 2
    axes.plot([x + SWITCH_IN, right_x], [y, y], **{**LINE, "linewidth": 4})
    _say(axes, (x + SWITCH_IN, right_x), y, _said(layout, "trunk", ("→", "←")), 0.07)
    if layout.flows:
        arrow = {"arrowstyle": "<|-|>", "linestyle": (0, (4, 2)), "color": "0.35"}
        axes.annotate(
            "", (right_x, y - 0.42), (x + SWITCH_IN, y - 0.42),
            arrowprops={**arrow, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
        axes.text((x + SWITCH_IN + right_x) / 2, y - 0.47, "competing flows", va="top", **SMALL)
    return x, right_x + SWITCH_IN


def _nodes(
    axes: Axes,
    layout: NetworkLayout,
    side: NodeColumn,
    x: tuple[float, float, float],
    height_in: float,
) -> None:
    """A side's nodes, spread over the height; `x` of the node's box, its edge and the switch."""
    node_x, from_x, to_x = x
    arrows = ("→", "←") if to_x > from_x else ("←", "→")
    row_in = height_in / len(side.rows) if side.rows else 0.0
    for place, node in enumerate(side.rows):
        y = height_in - row_in * (place + 0.5)
        if node is None:
            first, last = side.missing[0], side.missing[-1]
            said = [f"{len(side.missing)} more", f"nodes {first} to {last}"]
            axes.text(node_x + NODE_IN / 2, y, "\n".join(said), va="center", **SMALL)
            _say(axes, (from_x, to_x), y, _of_many(layout, side.missing, arrows), 0.03)
            continue
        fill, said = "white", [f"node {node}"]
        if layout.sites:
            fill = SITES[layout.sites[node] % len(SITES)]
            said[0] += f", site {layout.sites[node]}"
        if layout.workers_per_node > 1:
            said.append(f"{layout.workers_per_node} workers")
        _box(axes, node_x, y - 0.19, NODE_IN, 0.38, "\n".join(said), fill)
        axes.plot([from_x, to_x], [y, y], **LINE)
        _say(axes, (from_x, to_x), y, _said(layout, str(node), arrows), 0.03)


def _box(axes: Axes, x: float, y: float, width: float, height: float, name: str, fill: str) -> None:
    style = "round,pad=0,rounding_size=0.06"
    look: Any = {"facecolor": fill, "edgecolor": "0.25", "linewidth": 1.0}
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, **look))
    axes.text(x + width / 2, y + height / 2, name, va="center", fontsize=8, ha="center")


def _say(
    axes: Axes, x: tuple[float, float], y: float, said: tuple[str, str], gap_in: float
) -> None:
    """Draw one text above a line and one below."""
    middle = sum(x) / 2
    axes.text(middle, y + gap_in, said[0], va="bottom", **SMALL)
    axes.text(middle, y - gap_in, said[1], va="top", **SMALL)


def _said(layout: NetworkLayout, link: str, arrows: tuple[str, str]) -> tuple[str, str]:
    """Label a link with the conditions of its two ways: rate above, the rest below."""
    found = [layout.links.get(way_of(link, way)) for way in WAYS]
    return _words(found[0], found[1], arrows)


def _of_many(
    layout: NetworkLayout, nodes: Sequence[int], arrows: tuple[str, str]
) -> tuple[str, str]:
    """Label several nodes' links with the range of conditions that covers them all."""
    found: list[ConditionRanges | None] = []
    for way in WAYS:
        known = [layout.links[name] for n in nodes if (name := f"{way}{n}") in layout.links]
        columns = zip(*known, strict=True)
        wide = [Range(min(r.low for r in c), max(r.high for r in c)) for c in columns]
        found.append(ConditionRanges(*wide) if known else None)
    return _words(found[0], found[1], arrows)


def _words(
    up: ConditionRanges | None, down: ConditionRanges | None, arrows: tuple[str, str]
) -> tuple[str, str]:
    if up == down:
        return (f"{_rate(up)} both ways", _rest(up)) if up else ("", "")
    above, below = (
        f"{arrow} {way} " + (", ".join(filter(None, (_rate(link), _rest(link)))) if link else "?")
        for way, arrow, link in zip(WAYS, arrows, (up, down), strict=True)
    )
    return above, below


def _rate(link: ConditionRanges) -> str:
    return f"{_span(link.rate_mbit)} Mbit/s"


def _rest(link: ConditionRanges) -> str:
    """Delay, jitter and loss, where there are any."""
    parts = []
    if link.delay_ms.high:
        jitter = f" ± {_span(link.jitter_ms)}" if link.jitter_ms.high else ""
        parts.append(f"{_span(link.delay_ms)}{jitter} ms")
    if link.loss.high:
        parts.append(f"loss {_span(Range(*(100 * share for share in link.loss)))} %")
    return ", ".join(parts)


def _span(values: Range) -> str:
    low, high = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values)
    return low if low == high else f"{low}–{high}"


def _notes(layout: NetworkLayout) -> list[str]:
    """Notes for below the drawing: what is shaped, drawn and competing."""
    found = [layout.notes]
    if layout.left and not any(name.startswith("up") for name in layout.links):
        found.append("only the trunk is shaped")
    if layout.nodes > MOST_NODES:
        found.append(f"{layout.nodes} nodes, of which some are drawn")
    if layout.flows:
        most = max(layout.flows.values())
        paths = list(layout.flows)
        named = ", ".join(path.replace("-", " to ").replace("_", " ") for path in paths[:4])
        more = f" and {len(paths) - 4} more paths" if len(paths) > 4 else ""
        found.append(f"competing TCP flows, up to {most} at a time on each path: {named}{more}")
    return found


def _matrix_in(layout: NetworkLayout) -> float:
    rows = len(layout.site_delays_ms or ())
    return NOTE_IN * (rows + 2.5) if rows else 0.0


def _below(axes: Axes, layout: NetworkLayout, notes: list[str], width_in: float) -> None:
    """Notes, and the delays between sites as a table."""
    y = -1.2 * NOTE_IN
    for note in notes:
        axes.text(width_in / 2, y, note, va="center", **SMALL)
        y -= NOTE_IN
    rows = layout.site_delays_ms or []
    if not rows:
        return
    x = width_in / 2 - CELL_IN * (len(rows) - 1) / 2
    said = "one-way delay between sites (ms), beside that of the links"
    axes.text(width_in / 2, y - 0.3 * NOTE_IN, said, va="center", **SMALL)
    y -= 1.4 * NOTE_IN
    for column in range(len(rows)):
        axes.text(x + column * CELL_IN, y, f"to site {column}", va="center", **SMALL)
    for number, row in enumerate(rows):
        y -= NOTE_IN
        axes.text(x - CELL_IN, y, f"from site {number}", va="center", **SMALL)
        for column, delay_ms in enumerate(row):
            axes.text(x + column * CELL_IN, y, f"{delay_ms:g}", va="center", **SMALL)
