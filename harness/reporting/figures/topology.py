"""Figure of a run's network: nodes, switches, trunk, and the ranges of link conditions."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.reporting.figures.layout import ConditionRanges, NetworkLayout, Range
from harness.reporting.figures.theme import LOOK, sheet

MOST_NODES, OF_MANY = 16, 4  # with more nodes, OF_MANY are drawn on each side
ROW_IN, BOX_IN, LINE_IN, LETTER_IN = 0.56, 1.05, 0.24, 0.065
SMALL: Any = {"fontsize": 7.5, "ha": "center", "va": "center"}


@mpl.rc_context(LOOK)
def network(layout: NetworkLayout, title: str = "") -> Figure:
    """Draw a star with half of the nodes on each side, or a dumbbell's halves and its trunk."""
    left = layout.left or (layout.nodes + 1) // 2
    sides = [_drawn(range(left), layout.nodes), _drawn(range(left, layout.nodes), layout.nodes)]
    labels = {node: _label(layout, f"up{node}", f"down{node}") for side in sides for node in side}
    trunk = _label(layout, "trunk_up", "trunk_down")
    link_in = max(0.7, LETTER_IN * max(len(line) for label in labels.values() for line in label))
    trunk_in = max(1.6, LETTER_IN * max(map(len, trunk))) if layout.left else 0.0
    switches = [BOX_IN + link_in, BOX_IN + link_in + (BOX_IN + trunk_in if layout.left else 0.0)]
    width_in = switches[1] + 2 * BOX_IN + link_in
    height_in = ROW_IN * max(2, *map(len, sides))
    notes = _notes(layout)
    below_in = LINE_IN * (len(notes) + 1)
    figure = sheet(title, height_in + below_in + 0.6, width_in + 0.3)
    axes = figure.subplots()
    axes.axis("off")
    axes.set(xlim=(-0.1, width_in + 0.1), ylim=(-below_in, height_in + 0.1), aspect="equal")
    for x in dict.fromkeys(switches):
        _box(axes, (x, 0.0), height_in, "the network\nthere is" if layout.machines else "switch")
    if layout.left:
        _line(axes, (switches[0] + BOX_IN, switches[1]), height_in / 2, trunk, width=4)
    for side, node_x, ends in (
        (sides[0], 0.0, (BOX_IN, switches[0])),
        (sides[1], width_in - BOX_IN, (switches[1] + BOX_IN, width_in - BOX_IN)),
    ):
        for row, node in enumerate(side):
            y = height_in - height_in / len(side) * (row + 0.5)
            name = f"node {node}" + (f", site {layout.sites[node]}" if layout.sites else "")
            if layout.workers_per_node > 1:
                name += f"\n{layout.workers_per_node} workers"
            _box(axes, (node_x, y - 0.19), 0.38, name)
            _line(axes, ends, y, labels[node])
    for row, note in enumerate(notes):
        axes.text(width_in / 2, -LINE_IN * (row + 1), note, **SMALL)
    return figure


def _drawn(side: Sequence[int], nodes: int) -> list[int]:
    return list(side) if nodes <= MOST_NODES else [*side[: OF_MANY - 1], side[-1]]


def _box(axes: Axes, corner: tuple[float, float], height: float, name: str) -> None:
    axes.add_patch(Rectangle(corner, BOX_IN, height, facecolor="0.95", edgecolor="0.25"))
    axes.text(corner[0] + BOX_IN / 2, corner[1] + height / 2, name, **SMALL)


def _line(
    axes: Axes, x: tuple[float, float], y: float, label: tuple[str, str], width: float = 1.2
) -> None:
    axes.plot(x, [y, y], color="0.25", linewidth=width, solid_capstyle="butt")
    for text, at in zip(label, (y + 0.11, y - 0.11), strict=True):
        axes.text(sum(x) / 2, at, text, **SMALL)


def _label(layout: NetworkLayout, up: str, down: str) -> tuple[str, str]:
    """Return the texts above and below a link: one per direction, or one if they are equal."""
    one, other = (_words(layout.links.get(name)) for name in (up, down))
    return (
        (f"both ways {one}", "")
        if one == other and one
        else (f"up {one}" if one else "", f"down {other}" if other else "")
    )


def _words(link: ConditionRanges | None) -> str:
    if link is None:
        return ""
    said = [f"{_span(link.rate_mbit)} Mbit/s"]
    if link.delay_ms.high:
        jitter = f" ± {_span(link.jitter_ms)}" if link.jitter_ms.high else ""
        said.append(f"{_span(link.delay_ms)}{jitter} ms")
    if link.loss.high:
        said.append(f"loss {_span(Range(*(100 * share for share in link.loss)))} %")
    return ", ".join(said)


def _span(values: Range) -> str:
    low, high = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values)
    return low if low == high else f"{low}–{high}"


def _notes(layout: NetworkLayout) -> list[str]:
    """Return the lines of text below the drawing."""
    found = [layout.notes]
    if layout.left and not any(name.startswith("up") for name in layout.links):
        found.append("only the trunk is shaped")
    if layout.nodes > MOST_NODES:
        found.append(f"{layout.nodes} nodes, of which some are drawn")
    if layout.flows:
        most, paths = max(layout.flows.values()), len(layout.flows)
        found.append(f"up to {most} competing TCP flows at a time on each of {paths} paths")
    for site, row in enumerate(layout.site_delays_ms or ()):
        delays = ", ".join(f"{delay_ms:g} to {to}" for to, delay_ms in enumerate(row))
        found.append(f"one-way delay from site {site} (ms), beside that of the links: {delays}")
    return found
