"""Compression costs of a device, as a choice of `network/device`."""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import torch

from harness.calibrate import compression
from harness.calibrate.compression import FittedCost, MatrixLayout, TimedLayout
from harness.config.search_path import CONF
from harness.records import environment

DENSITY = 0.01  # of compressors that have a level
PASSES = 3
LAYOUTS = (
    MatrixLayout(1, 64), MatrixLayout(1, 512), MatrixLayout(1, 2048), MatrixLayout(1, 4096),
    MatrixLayout(16, 64), MatrixLayout(16, 512), MatrixLayout(16, 1024), MatrixLayout(64, 256),
)  # fmt: skip


def measured(device: torch.device) -> Iterator[TimedLayout]:
    """Time every compressor of conf/compressor, on buckets as large as a device's.

    The shortest of PASSES passes counts, since a pass may include compilation of a kernel or a host
    that was busy for seconds.
    """

    def once() -> Iterator[TimedLayout]:
        return compression.measured(compression.compositions((DENSITY,)), LAYOUTS, device)

    before = [list(once()) for _ in range(PASSES - 1)]
    for *others, last in zip(*before, once(), strict=True):
        yield last._replace(seconds=min(each.seconds for each in (*others, last)))


def text(name: str, costs: Mapping[str, FittedCost]) -> str:
    """Return the choice: costs by compressor, and their origin."""
    told = environment.describe()
    commit = (told["git"] or {"commit": "none"})["commit"][:12]
    lines = [
        f"# What compression costs {name}, by `python -m harness.doctor --calibrate --device`:",
        f"# {date.today()}, commit {commit}, torch {torch.__version__}, {environment.machine()}.",
        "# The coefficients are told of in harness/config/device_costs.py.",
        f"name: {name}",
        "costs:",
    ]
    for file, (cost, median, worst) in costs.items():
        values = [f"{key}: {value:g}" for key, value in compression.spelled(cost).items()]
        values.append(f'source: "off by {median:.0%} in the median, {worst:.0%} at most"')
        lines.append(f"  {file}: {{{', '.join(values)}}}")
    return "\n".join(lines) + "\n"


def path_of(choice: str) -> Path:
    return CONF / "network" / "device" / f"{choice}.yaml"


def name_of(device: torch.device) -> str:
    """Return the name of a GPU, or of the machine that has this core."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"one core of {environment.machine()}"
