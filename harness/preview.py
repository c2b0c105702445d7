"""Draws the conditions each node would see, and runs nothing.

python -m harness.preview [GROUP=CHOICE] [KEY=VALUE] [+experiment=NAME] [--seconds S] [--out FILE]
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
from hydra.core.override_parser.overrides_parser import OverridesParser

from harness import constraints
from harness.config import sweep
from harness.config.refused import in_a_line
from harness.config.scales import chosen
from harness.config.settings import BadSetting, Settings
from harness.records.outputs import OutputFolder
from harness.reporting.figures.conditions import NodeConditions, conditions, names
from harness.reporting.figures.theme import image
from profiles import recordings
from profiles.base import Profile

MOST_S = 100_000  # a day and some; random profiles are drawn up to there
MOST_LOOKS = 3000  # more than a figure has pixels
TICK_S = 0.1  # the network looks at a profile no more often
FORMATS = (".png", ".pdf", ".svg")


class Parser(argparse.ArgumentParser):
    """Command line parser that ends with one line and status 1, as for every other bad value."""

    def error(self, message: str) -> NoReturn:
        sys.exit(f"{self.prog.removeprefix('python -m ')}: {message}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, print the figure's path and the table; one line and exit status 1 for a bad value."""
    try:
        preview(_parsed(arguments))
    except (BadSetting, OSError) as error:
        sys.exit(f"harness.preview: {error}")


def preview(wanted: argparse.Namespace) -> None:
    """Compose as a run would, look at its profile, draw, print."""
    if not 1 <= wanted.seconds <= MOST_S:
        raise BadSetting(f"--seconds must be in [1, {MOST_S}], got {wanted.seconds:g}")
    settings, name = composed(wanted.overrides)
    out = wanted.out or Path(settings["results"]) / f"preview_{name}.png"
    if out.suffix not in FORMATS:
        raise BadSetting(f"--out must end in one of {', '.join(FORMATS)}, got {str(out)!r}")
    run = settings.run()
    constraints.check(run, "workers_per_node", "profile")
    profile, nodes = run.profile, run.nodes
    times_s = looks_s(wanted.seconds)
    seen = look(profile, nodes, times_s)
    flows = np.array([profile.flows(time_s) for time_s in times_s])
    figure = conditions(times_s, seen, flows, f"profile {name}, {nodes} nodes")
    folder = OutputFolder(out.parent, instead="write elsewhere with --out FILE")
    print(folder.write(out.name, image(figure, out.suffix[1:], dpi=150)))
    print(table(seen, int(flows.max())))
    for note in recordings.notes(profile):
        print(note)


def composed(overrides: Sequence[str]) -> tuple[Settings, str]:
    """The settings of one run, and the name of its profile; what a sweep would vary stays out."""
    with in_a_line(overrides):
        for each in OverridesParser.create().parse_overrides(list(overrides)):
            if each.is_sweep_override():
                raise BadSetting(f"{each.input_line}: this command is of one run, so say one value")
        found = chosen(overrides)
        with sweep.hydra():
            config = sweep.load(found)
        return sweep.plain_settings(config), str(config.hydra.runtime.choices["profile"])


def looks_s(seconds: float) -> np.ndarray:
    """Times to look at a profile, from 0 to `seconds`."""
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
    """Lowest, mean and highest rate, and the most of the rest, a line per group of nodes."""
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


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python -m harness.preview", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="as for python -m harness")
    parser.add_argument("--seconds", type=float, default=600.0, help="emulated, from step 0 (600)")
    parser.add_argument("--out", type=Path, help="a .png, .pdf or .svg; default: in results/")
    return parser.parse_intermixed_args(arguments)


if __name__ == "__main__":
    main()
