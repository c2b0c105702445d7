"""Write the result of a calibration as a choice of the config group `network`."""

import json
import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from harness.calibrate import fit
from harness.calibrate.compression import FittedCost, spelled
from harness.calibrate.windows import TcpWindows
from harness.config.search_path import CONF
from harness.records import environment
from harness.virtual.noise import MOST_LATENCY_NOISE, MOST_NOISE

DIGITS = 3
LINKS, WINDOWS = "# collectives:", "# transfers over long ways:"  # comments that begin parts
COMPRESSION, END = "# compression:", "real_seconds:"


def path_of(name: str) -> Path:
    return CONF / "network" / f"{name}.yaml"


def text(
    links: fit.Links | None,
    costs: Mapping[str, FittedCost],
    windows: TcpWindows | None = None,
    before: str = "",
) -> str:
    """Return the YAML of a choice based on `simulated` with the measured constants.

    A part that was not measured (None, or no `costs`) is copied from `before`, an older text.
    """
    kept = _parts(before)
    lines = [*_origin(), "defaults: [simulated@_here_, _self_]"]
    if links is None:
        lines += kept.get(LINKS, [])
    else:
        lines += [
            f"{LINKS} off by {links.median:.1%} in the median, {links.worst:.1%} at most",
            f"alpha_s: {_rounded(links.alpha_s)}",
            f"operation_s: {_rounded(links.operation_s)} # of a collective, and so of a bucket",
            f"efficiency: {_rounded(links.efficiency)}",
            *_by_rate(links.efficiencies),
            f"message_bytes: {round(links.message_bytes)} # beside what is in a message",
            f"wake_s: {_rounded(links.wake_s)} # of collectives of few bytes",
            f"burst_s: {links.bucket.burst_s} # of the shaper, as are packets",
            f"packet_s: {links.bucket.packet_s}",
            f"noise: {_rounded(min(links.noise, MOST_NOISE))} # of equal collectives",
            f"latency_noise: {_rounded(min(links.latency_noise, MOST_LATENCY_NOISE))}",
        ]
    if windows is None:
        lines += kept.get(WINDOWS, [])
    else:
        off = f"off by {windows.median:.1%} in the median, {windows.worst:.1%} at most"
        lines += [
            f"{WINDOWS} {off}",
            f"window_bytes: {windows.window_bytes}",
            f"initial_window_bytes: {windows.initial_window_bytes} # after a pause",
        ]
    if not costs:
        lines += kept.get(COMPRESSION, [])
    else:
        typical = median(found.median for found in costs.values())
        worst = max(found.worst for found in costs.values())
        lines.append(f"{COMPRESSION} off by {typical:.0%} in the median, {worst:.0%} at most")
        lines += ["device:", "  costs:"]
        for name, found in sorted(costs.items()):
            told = ", ".join(f"{key}: {value}" for key, value in spelled(found.cost).items())
            lines.append(f"    {name}: {{{told}}}")
    here = [f"cores: {os.cpu_count()}", f"fitted_on: {json.dumps(environment.machine())}"]
    return "\n".join([*lines, f"{END} true", *here]) + "\n"


def _parts(text: str) -> dict[str, list[str]]:
    """Return the lines of each part of an older text, by the comment that begins the part."""
    found: dict[str, list[str]] = {}
    part: list[str] = []
    for line in text.splitlines():
        begins = next((each for each in (LINKS, WINDOWS, COMPRESSION) if line.startswith(each)), "")
        if begins or line.startswith(END):
            part = []
        if begins:
            found[begins] = part
        part.append(line)
    return found


def _by_rate(efficiencies: Mapping[float, float]) -> list[str]:
    told = ", ".join(f"{rate:g}: {_rounded(share)}" for rate, share in efficiencies.items())
    return [f"efficiencies: {{{told}}}"] if told else []


def _origin() -> list[str]:
    told: dict[str, Any] = environment.describe()
    git = told["git"] or {"commit": "none", "dirty": False}
    commit = git["commit"][:12] + (" and changes" if git["dirty"] else "")
    load = f"load {told['load_average'][0]:.1f}"
    return [
        "# Virtual time as this machine runs it, fitted by `python -m harness.doctor --calibrate`.",
        f"# {environment.machine()}, {load}; {date.today()}, commit {commit}",
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
