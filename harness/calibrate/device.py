"""What compression costs a device, fitted to it: a choice of `network/device`.

Every compressor is timed on buckets of few and many elements, in one matrix and in many; one with a
rank at several. The coefficients are those of `harness.config.device_costs.Cost`.
"""

from collections.abc import Iterator, Sequence
from datetime import date
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch

from harness.calibrate import compression, fit
from harness.config.device_costs import Cost, file_of
from harness.config.parts import choices
from harness.config.search_path import CONF
from harness.engine.exchange.reduction import BucketBuffers
from harness.preview import composed
from harness.records import environment

DENSITY = 0.01  # of compressors that have a level
RANKS = (1, 4, 16)  # of compressors that have one
VECTOR = 64  # elements of each matrix's bias


class MatrixLayout(NamedTuple):
    """Matrices of a bucket, square, each with a vector beside it."""

    matrices: int
    side: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        pair = {"weight": (self.side, self.side), "bias": (VECTOR,)}
        return {f"{k}.{name}": shape for k in range(self.matrices) for name, shape in pair.items()}


LAYOUTS = (
    MatrixLayout(1, 64), MatrixLayout(1, 512), MatrixLayout(1, 2048), MatrixLayout(1, 4096),
    MatrixLayout(16, 64), MatrixLayout(16, 512), MatrixLayout(16, 1024), MatrixLayout(64, 256),
)  # fmt: skip


class TimedLayout(NamedTuple):
    """Seconds of a bucket's compression, the mean of several steps."""

    compressor: str  # the file it is in
    rank: int  # 0: it has none
    layout: MatrixLayout
    seconds: float

    @property
    def row(self) -> tuple[float, ...]:
        """What each coefficient of a cost is multiplied by, in the order of COEFFICIENTS."""
        layout, elements = self.layout, sum(prod(each) for each in self.layout.shapes.values())
        if not self.rank:
            return (1.0, layout.matrices, elements)
        columns = layout.matrices * min(self.rank, layout.side)
        return (1.0, layout.matrices, elements, columns, columns * layout.side**2)


COEFFICIENTS = ("bucket_us", "matrix_us", "element_ns", "column_us", "rank_ns")
SCALES = {"us": 1e6, "ns": 1e9}  # of one second


class FittedCost(NamedTuple):
    """A compressor's cost, and how far it is off."""

    cost: Cost
    median: float  # absolute error of a sample, relative
    worst: float


def measured(
    device: torch.device, layouts: Sequence[MatrixLayout] = LAYOUTS
) -> Iterator[TimedLayout]:
    """Every compressor of conf/compressor, on each of `layouts`."""
    for overrides in compositions():
        run = composed(overrides)[0].run()
        compressor = run.compressor()
        rank = int(getattr(compressor, "rank", None) or 0)
        for layout in layouts:
            gradient, bucket = laid_out(layout, device)
            seconds = compression.seconds_of(run, gradient, bucket, device)
            yield TimedLayout(file_of(compressor), rank, layout, seconds)


def compositions() -> Iterator[list[str]]:
    """Each compressor once, at DENSITY; once for each of RANKS where it has a rank."""
    for overrides in compression.compositions((DENSITY,)):
        name = overrides[0].removeprefix("compressor=")
        if "rank" in choices("compressor")[name]:
            for rank in RANKS:
                yield [*overrides, f"compressor.rank={rank}"]
        else:
            yield overrides


def fitted(samples: Sequence[TimedLayout]) -> dict[str, FittedCost]:
    """The cost of each compressor among `samples`, by the name of its file."""
    by_file: dict[str, list[TimedLayout]] = {}
    for each in samples:
        by_file.setdefault(each.compressor, []).append(each)
    found = {}
    for file, some in sorted(by_file.items()):
        solution, errors = fit.solved([one.row for one in some], [one.seconds for one in some])
        named = zip(COEFFICIENTS, solution, strict=False)
        cost = Cost(**{name: float(SCALES[name[-2:]] * value) for name, value in named})
        ranked = sorted(errors)
        found[file] = FittedCost(cost, float(ranked[len(ranked) // 2]), float(ranked[-1]))
    return found


def text(name: str, costs: dict[str, FittedCost]) -> str:
    """The choice: costs by compressor, with where they are from."""
    told = environment.describe()
    commit = (told["git"] or {"commit": "none"})["commit"][:12]
    lines = [
        f"# What compression costs {name}, fitted by `python -m harness.calibrate --device`:",
        f"# {date.today()}, commit {commit}, torch {torch.__version__}, {environment.machine()}.",
        "# The coefficients are told of in harness/config/device_costs.py.",
        f"name: {name}",
        "costs:",
    ]
    for file, (cost, median, worst) in costs.items():
        values = [f"{key}: {value:.3g}" for key, value in cost._asdict().items() if value]
        values.append(f'source: "off by {median:.0%} in the median, {worst:.0%} at most"')
        lines.append(f"  {file}: {{{', '.join(values)}}}")
    return "\n".join(lines) + "\n"


def path_of(choice: str) -> Path:
    return CONF / "network" / "device" / f"{choice}.yaml"


def name_of(device: torch.device) -> str:
    """What the device calls itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"one core of {environment.machine()}"


def laid_out(layout: MatrixLayout, device: torch.device) -> tuple[torch.Tensor, BucketBuffers]:
    """A gradient, and a bucket for it, with parameters."""
    shapes = list(layout.shapes.values())
    sizes = [prod(shape) for shape in shapes]
    noise = torch.Generator().manual_seed(0)
    gradient, weights = (torch.randn(sum(sizes), generator=noise).to(device) for _ in range(2))
    buffer = torch.empty_like(gradient)
    views = [
        [part.view(shape) for part, shape in zip(each.split(sizes), shapes, strict=True)]
        for each in (buffer, weights)
    ]
    return gradient, BucketBuffers(buffer, tuple(layout.shapes), *views)
