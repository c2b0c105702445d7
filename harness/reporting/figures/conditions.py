"""Figure of a network profile over time, which `draw=true` writes before a run."""

from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from harness.reporting.figures.theme import LOOK, sheet
from profiles.base import Link

MOST_CURVES = 8  # groups of nodes; more are drawn as their range and mean
PANEL_IN, AROUND_IN = 2.2, 1.2
QUANTITIES = {  # by field of Link: axis label, and factor to its unit
    "rate_mbit": ("rate (Mbit/s)", 1.0),
    "delay_ms": ("one-way delay (ms)", 1.0),
    "jitter_ms": ("jitter (ms)", 1.0),
    "loss": ("loss (%)", 100.0),
    "reorder": ("reordered (%)", 100.0),
}


class NodeConditions(NamedTuple):
    """Conditions over time of a group of nodes whose links have equal conditions."""

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
    """Plot the link conditions of all groups of nodes in `seen` over `times_s`, [times].

    Each condition that changes has a panel; the title names the constant ones. `flows` is the
    number of competing flows, [times].
    """
    shown, constant = ["rate_mbit"], []
    for name in Link._fields[1:]:
        values = np.concatenate(
            [way[:, Link._fields.index(name)] for each in seen for way in each[1:]]
        )
        label, factor = QUANTITIES[name]
        if np.ptp(values):
            shown.append(name)
        elif values[0]:
            what, unit = label.rstrip(")").split(" (")
            constant.append(f"{what} {values[0] * factor:g} {unit}")
    panels = len(shown) + bool(flows.any())
    heading = "\n".join(filter(None, [title, ", ".join(constant)]))
    figure = sheet(heading, PANEL_IN * panels + AROUND_IN)
    all_axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(all_axes, shown, strict=False):
        label, factor = QUANTITIES[name]
        column = Link._fields.index(name)
        ways = ("up",) if all(each.symmetric for each in seen) else ("up", "down")
        for way, line in zip(ways, ("-", "--"), strict=False):
            curves = np.array([factor * getattr(each, way)[:, column] for each in seen])
            suffix = f" {way}" if len(ways) > 1 else ""
            if len(seen) <= MOST_CURVES:
                for number, (each, curve) in enumerate(zip(seen, curves, strict=True)):
                    said = {"label": names(each.nodes) + suffix, "color": f"C{number}"}
                    axes.plot(times_s, curve, line, drawstyle="steps-post", lw=1.1, **said)
            else:
                counts = [len(each.nodes) for each in seen]
                mean = np.average(curves, axis=0, weights=counts)
                color = "C1" if way == "down" else "C0"
                axes.fill_between(times_s, curves.min(0), curves.max(0), step="post", alpha=0.2,
                                  color=color, label=f"all nodes{suffix}: range")  # fmt: skip
                axes.plot(times_s, mean, line, color=color, label=f"all nodes{suffix}: mean")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    if flows.any():
        all_axes[-1].fill_between(times_s, flows, step="post", color="0.6", linewidth=0)
        all_axes[-1].set_ylabel("competing flows")
    all_axes[-1].set(xlabel="emulated time (s)", xlim=(times_s[0], times_s[-1]))
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def names(nodes: list[int]) -> str:
    """Format a group of nodes as text: `node 3`, or `nodes 0-2, 5`."""
    runs: list[list[int]] = []
    for node in nodes:
        if runs and runs[-1][-1] == node - 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    said = ", ".join(str(run[0]) + (f"-{run[-1]}" if len(run) > 1 else "") for run in runs)
    return f"node {said}" if len(nodes) == 1 else f"nodes {said}"
