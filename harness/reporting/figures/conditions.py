"""Figures of profiles: what nodes will see over time."""

import textwrap
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import MaxNLocator

from harness.reporting.figures.theme import LOOK
from profiles.base import Link

MOST_ROWS = 8  # of curves; more nodes that differ are drawn as a map
UP, DOWN = "#0072B2", "#D55E00"  # Okabe & Ito (2008)
WIDTH_IN = 9.0
MAP_COLUMNS = 800


class Quantity(NamedTuple):
    """A field of Link, with the label and the factor it is shown with."""

    field: str
    label: str
    factor: float = 1.0
    colors: str = "magma_r"  # of a map

    @property
    def column(self) -> int:
        return Link._fields.index(self.field)


RATE = Quantity("rate_mbit", "rate (Mbit/s)", colors="viridis")
DELAY = Quantity("delay_ms", "one-way delay (ms)")
JITTER = Quantity("jitter_ms", "jitter (ms)")
LOSS = Quantity("loss", "loss (%)", 100)
REORDER = Quantity("reorder", "reordered (%)", 100)


class NodeConditions(NamedTuple):
    """Conditions over time of nodes whose links all see the same."""

    nodes: list[int]
    up: np.ndarray  # [times, 5], columns as in Link
    down: np.ndarray

    @property
    def symmetric(self) -> bool:
        return np.array_equal(self.up, self.down)


@mpl.rc_context(LOOK)
def conditions(
    times_s: np.ndarray, seen: list[NodeConditions], flows: np.ndarray, title: str
) -> Figure:
    """Rate, and what else changes, of every node: `times_s` and `flows` are [times]."""
    shown = [RATE] + [each for each in (DELAY, LOSS, REORDER) if _changes(each, seen)]
    if _changes(JITTER, seen) and DELAY not in shown:
        shown.insert(1, DELAY)  # jitter is drawn around it
    heading = "\n".join(filter(None, [title, _constant(shown, seen)]))
    drawn = _curves if len(seen) <= MOST_ROWS else _maps
    return drawn(times_s, seen, flows, shown, heading)


def _changes(quantity: Quantity, seen: list[NodeConditions]) -> bool:
    values = [way[:, quantity.column] for each in seen for way in (each.up, each.down)]
    return bool(np.ptp(values))


def _constant(shown: list[Quantity], seen: list[NodeConditions]) -> str:
    """Describe in words the impairments that never change, such as "delay 20 ms"."""
    said = []
    for quantity in (DELAY, JITTER, LOSS, REORDER):
        value = seen[0].up[0, quantity.column] * quantity.factor
        with_delay = quantity is JITTER and DELAY in shown
        if value and quantity not in shown and not with_delay:
            name, unit = quantity.label.rstrip(")").split(" (")
            said.append(f"{name} {value:g} {unit}")
    return ", ".join(said)


def _curves(
    times_s: np.ndarray,
    seen: list[NodeConditions],
    flows: np.ndarray,
    shown: list[Quantity],
    title: str,
) -> Figure:
    """A row of panels for every group of nodes that see the same, a column per quantity."""
    rows, with_flows = len(seen), bool(flows.any())
    row_in = 2.6 if rows == 1 else 1.5 if rows <= 4 else 1.0
    width_in = WIDTH_IN + 1.5 * (len(shown) - 1)
    figure = _sheet(title, row_in * rows + 1.2 * with_flows, width_in)
    ratios = [row_in] * rows + [1.1] * with_flows
    grid = GridSpec(len(ratios), len(shown), figure, height_ratios=ratios)
    for column, quantity in enumerate(shown):
        first: Axes | None = None
        for row, each in enumerate(seen):
            axes = figure.add_subplot(grid[row, column], sharex=first, sharey=first)
            first = first or axes
            _curve(axes, times_s, each, quantity)
            axes.tick_params(labelbottom=row == rows - 1)
            if row == 0:
                axes.set_title(quantity.label, fontsize=10)
            if column == 0:
                said = textwrap.fill(names(each.nodes), 12)
                axes.set_ylabel(said, rotation=0, ha="right", va="center")
        axes.set_xlabel("" if with_flows else "emulated time (s)")
        axes.set_ylim(bottom=0)
    if with_flows:
        _flows(figure.add_subplot(grid[rows, :]), times_s, flows)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _curve(axes: Axes, times_s: np.ndarray, seen: NodeConditions, quantity: Quantity) -> None:
    ways = [(seen.up, UP, "up"), (seen.down, DOWN, "down")]
    if seen.symmetric:
        ways = [(seen.up, UP, "")]  # matplotlib leaves an empty label out of the legend
    for links, color, label in ways:
        values = links[:, quantity.column] * quantity.factor
        low, high = np.zeros_like(values), values
        if quantity is DELAY:
            jitter = links[:, JITTER.column]
            low, high = values - jitter, values + jitter
        axes.fill_between(times_s, low, high, step="post", color=color, alpha=0.15, linewidth=0)
        axes.plot(times_s, values, color=color, label=label, lw=1.1, drawstyle="steps-post")
    axes.set_xlim(times_s[0], times_s[-1])
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))


def _flows(axes: Axes, times_s: np.ndarray, flows: np.ndarray) -> None:
    look: Any = {"color": "0.6", "step": "post", "linewidth": 0}
    axes.fill_between(times_s, flows, **look)
    axes.set_xlim(times_s[0], times_s[-1])
    axes.set_ylim(0, 1.15 * flows.max())
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.set_ylabel("competing\nflows", rotation=0, ha="right", va="center")
    axes.set_xlabel("emulated time (s)")


def _maps(
    times_s: np.ndarray,
    seen: list[NodeConditions],
    flows: np.ndarray,
    shown: list[Quantity],
    title: str,
) -> Figure:
    """A panel per quantity, and per way where they differ; a row per node, values as colour."""
    panels = [panel for quantity in shown for panel in _panels(seen, quantity)]
    panel_in, with_flows = min(3.4, max(2.2, 0.055 * len(panels[0].values))), bool(flows.any())
    figure = _sheet(title, panel_in * len(panels) + 1.2 * with_flows)
    ratios = [panel_in] * len(panels) + [1.1] * with_flows
    all_axes = figure.subplots(len(ratios), 1, height_ratios=ratios, sharex=True, squeeze=False)
    for axes, panel in zip(all_axes[:, 0], panels, strict=False):
        drawn = axes.imshow(
            _worst(panel.values, panel.quantity),
            extent=(times_s[0], times_s[-1], len(panel.values) - 0.5, -0.5),
            aspect="auto",
            interpolation="nearest",
            cmap=panel.quantity.colors,
            vmin=0,
            vmax=panel.highest,
        )
        axes.grid(visible=False)
        axes.set_ylabel("node")
        axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
        figure.colorbar(drawn, ax=axes, label=panel.label, pad=0.01)
    if with_flows:
        _flows(all_axes[-1, 0], times_s, flows)
    all_axes[-1, 0].set_xlabel("emulated time (s)")
    return figure


class Panel(NamedTuple):
    """One heat map: a quantity of all nodes over time, in one direction."""

    quantity: Quantity
    values: np.ndarray  # [nodes, times]
    label: str
    highest: float  # of both ways, so that their colours compare


def _panels(seen: list[NodeConditions], quantity: Quantity) -> list[Panel]:
    """Both ways of a quantity, or one that stands for both; a way that is always 0 is left out."""
    nodes = sorted((node, place) for place, each in enumerate(seen) for node in each.nodes)
    up, down = (
        np.array([getattr(seen[place], way)[:, quantity.column] for _, place in nodes])
        * quantity.factor
        for way in ("up", "down")
    )
    highest = float(max(up.max(), down.max()))
    if np.array_equal(up, down):
        return [Panel(quantity, up, quantity.label, highest)]
    ways = {"up": up, "down": down}
    return [
        Panel(quantity, values, f"{quantity.label}, {way}", highest)
        for way, values in ways.items()
        if values.any()
    ]


def _worst(values: np.ndarray, quantity: Quantity) -> np.ndarray:
    """`values`, [nodes, times], in no more columns than can be seen; what is short stays there."""
    starts = np.arange(0, values.shape[1], -(-values.shape[1] // MAP_COLUMNS))
    keep = np.minimum if quantity is RATE else np.maximum
    return keep.reduceat(values, starts, axis=1)


def _sheet(title: str, height_in: float, width_in: float = WIDTH_IN) -> Figure:
    figure = Figure(figsize=(width_in, height_in + 0.9), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure


def names(nodes: list[int]) -> str:
    """`node 3`, or `nodes 0-2, 5`."""
    runs: list[list[int]] = []
    for node in nodes:
        if runs and runs[-1][-1] == node - 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    said = ", ".join(str(run[0]) + (f"-{run[-1]}" if len(run) > 1 else "") for run in runs)
    return f"node {said}" if len(nodes) == 1 else f"nodes {said}"
