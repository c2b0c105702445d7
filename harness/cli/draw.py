"""Setting `draw=true`: figure and table of a run's links over time, without starting the run."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness import constraints
from harness.config import parts
from harness.config.settings import Settings
from harness.records.outputs import OutputFolder
from harness.reporting.figures.conditions import NodeConditions, conditions, names
from harness.reporting.figures.theme import image
from profiles.base import Profile

USUAL_S = 600.0  # emulated seconds with draw=true
MOST_LOOKS = 3000  # samples: more than a figure has pixels
SEED = re.compile(r"'seed': [^,}]+")  # in the text of a profile's settings
TICK_S = 0.1  # the network reads a profile no more often


def draw(asked: Sequence[Settings]) -> None:
    """Draw the links of each profile of the runs `asked`; seeds alone make no other profile.

    Raise BadSetting if a profile does not fit the nodes, CannotWrite if writing fails.
    """
    profiles: dict[str, Settings] = {}
    for settings in asked:
        profiles.setdefault(SEED.sub("", str(settings["profile"])), settings)
    for number, settings in enumerate(profiles.values(), 1):
        _draw(settings, f"_{number}" if number > 1 else "")


def _draw(settings: Settings, number: str) -> None:
    """Write RESULTS/draw_PROFILE`number`.png; print its path and a table of rates and delays."""
    run = settings.run()
    constraints.check(run, "workers_per_node", "profile")
    name, _ = parts.named("profile", parts.canonical(settings["profile"], settings.config))
    times_s = looks_s(USUAL_S if settings["draw"] is True else settings["draw"])
    seen = look(run.profile, run.nodes, times_s)
    flows = np.array([run.profile.flows(time_s) for time_s in times_s])
    figure = conditions(times_s, seen, flows, f"profile {name}, {run.nodes} nodes")
    folder = OutputFolder(Path(settings["results"]), instead="write results=FOLDER")
    print(folder.write(f"draw_{name}{number}.png", image(figure, "png", dpi=150)))
    print(table(seen, int(flows.max())))


def looks_s(seconds: float) -> np.ndarray:
    """Return the times at which to sample a profile, from 0 to `seconds`."""
    return np.linspace(0, seconds, 1 + min(MOST_LOOKS, math.ceil(seconds / TICK_S)))


def look(profile: Profile, nodes: int, times_s: np.ndarray) -> list[NodeConditions]:
    """Sample every node's links at `times_s`; nodes with equal links share one entry."""
    found: dict[bytes, NodeConditions] = {}
    for node in range(nodes):
        up = np.array([profile.link(time_s, node, "up") for time_s in times_s])
        down = np.array([profile.link(time_s, node, "down") for time_s in times_s])
        same = found.setdefault(up.tobytes() + down.tobytes(), NodeConditions([], up, down))
        same.nodes.append(node)
    return list(found.values())


def table(seen: list[NodeConditions], most_flows: int) -> str:
    """Return a text table: rates and largest delay, loss and flows, one line per group of nodes."""
    head = ("", "lowest", "mean", "highest Mbit/s", "delay ms", "loss %", "flows")
    rows: list[tuple[str, ...]] = [head]
    for each in seen:
        ways = {"": each.up} if each.symmetric else {" up": each.up, " down": each.down}
        for way, links in ways.items():
            rates, most = links[:, 0], links.max(axis=0)
            numbers = (rates.min(), rates.mean(), rates.max(), most[1], 100 * most[3], most_flows)
            rows.append((names(each.nodes) + way, *(f"{number:.4g}" for number in numbers)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return "\n".join("  ".join(row) for row in cells)
