"""Compression times on a device or core, measured as virtual time would, and fitted.

Every compressor is timed on buckets of few and many elements, in one matrix and in many. Those with
a rank are timed at several ranks, and those with a density at several densities. The coefficients
are those of `harness.config.device_costs.Cost`.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import NamedTuple

import torch

from harness.calibrate import fit
from harness.config.device_costs import Cost, file_of
from harness.config.parts import choices, has_level, replaces
from harness.config.run import Run
from harness.config.scales import composed
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.training.build import reduction_of
from harness.virtual.circle import Circle
from harness.virtual.network import Simulated
from harness.virtual.workers import HomogeneousWorkers
from harness.virtual.world import World
from profiles.static import Static

WORKERS = 4  # whose pieces are decompressed
DENSITIES = (0.1, 0.01, 0.001)  # of compressors that have a level
RANKS = (1, 4, 16)  # of compressors that have one
VECTOR = 64  # elements of each matrix's bias
WARM, FEWEST, BUDGET_S = 2, 4, 0.04  # calls that are not timed, timed at least, and for how long
PAUSE_S = 0.002  # before each on a core, as a rank waits for its buckets
COEFFICIENTS = ("bucket_us", "matrix_us", "element_ns", "column_us", "rank_ns")
SCALES = {"us": 1e6, "ns": 1e9}  # of one second


class MatrixLayout(NamedTuple):
    """Square matrices of a bucket, each with a vector beside it."""

    matrices: int
    side: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        pair = {"weight": (self.side, self.side), "bias": (VECTOR,)}
        return {f"{k}.{name}": shape for k in range(self.matrices) for name, shape in pair.items()}


OF_A_CORE = (
    MatrixLayout(1, 64), MatrixLayout(1, 256), MatrixLayout(1, 512), MatrixLayout(1, 1024),
    MatrixLayout(16, 64), MatrixLayout(16, 256), MatrixLayout(64, 32), MatrixLayout(64, 128),
)  # fmt: skip


class TimedLayout(NamedTuple):
    """Time of compressing a bucket of one layout, as a mean over several steps."""

    compressor: str  # the file it is in
    rank: int  # 0: it has none
    layout: MatrixLayout
    seconds: float

    @property
    def row(self) -> tuple[float, ...]:
        """Return the factors of a cost's coefficients, in the order of COEFFICIENTS."""
        layout, elements = self.layout, sum(prod(each) for each in self.layout.shapes.values())
        if not self.rank:
            return (1.0, layout.matrices, elements)
        columns = layout.matrices * min(self.rank, layout.side)
        return (1.0, layout.matrices, elements, columns, columns * layout.side**2)


class FittedCost(NamedTuple):
    """A compressor's cost, and its relative error."""

    cost: Cost
    median: float  # absolute error of a sample, relative
    worst: float


def compositions(densities: Sequence[float] = DENSITIES) -> Iterator[list[str]]:
    """Return overrides for every compressor, with error feedback unless it has its own.

    Those with a density appear at each of `densities`, those with a rank with each of RANKS.
    """
    for name, section in choices("compressor").items():
        target = section["_target_"]
        feedback = "error_feedback" not in replaces(target)
        for density in densities if has_level(target) else (1.0,):
            told = [f"compressor={name}", f"controller.density={density}",
                    f"error_feedback={str(feedback).lower()}"]  # fmt: skip
            if "rank" in section:
                yield from ([*told, f"compressor.rank={rank}"] for rank in RANKS)
            else:
                yield told


def measured(
    composed_of: Iterable[Sequence[str]],
    layouts: Sequence[MatrixLayout] = OF_A_CORE,
    device: torch.device | None = None,
) -> Iterator[TimedLayout]:
    """Time the composed methods on each of `layouts`, on one thread.

    `device` None means a core. A method is measured at its first density. If several methods have
    equal compressor, feedback and first density, only the first is measured.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as a rank that shares the machine; threads that wait would count
    try:
        yield from _measured(composed_of, layouts, device or torch.device("cpu"))
    finally:
        torch.set_num_threads(before)


def _measured(
    composed_of: Iterable[Sequence[str]], layouts: Sequence[MatrixLayout], device: torch.device
) -> Iterator[TimedLayout]:
    known = set()
    for overrides in composed_of:
        run = composed([*overrides, f"workers={WORKERS}"])[0].run()
        compressor, density = run.compressor(), run.controller().density(None)
        same = str((compressor, run.error_feedback, density))
        if same in known:
            continue
        known.add(same)
        rank = int(getattr(compressor, "rank", None) or 0)
        for layout in layouts:
            seconds = seconds_of(run, *_laid_out(layout, device), device)
            yield TimedLayout(file_of(compressor), rank, layout, seconds)


def seconds_of(
    run: Run, gradient: torch.Tensor, bucket: BucketBuffers, device: torch.device
) -> float:
    """Return the mean of several steps on a bucket of `device`, since steps may differ.

    On a core each step begins after a pause, with cold caches as in training. In a tight loop top-k
    takes half as long, and a filter of whole buckets a quarter.
    """
    costs = Simulated().costs(Static(rate_mbit=1e6), WORKERS, 1)
    circle = Circle(World(device), 1)
    workers = HomogeneousWorkers(0, WORKERS, circle, costs, device, seconds_per_second=1.0)
    reduction = reduction_of(run, workers)
    pause_s = PAUSE_S if device.type == "cpu" else 0.0
    began, done = 0.0, 0
    while done < WARM + FEWEST or time.perf_counter() - began < BUDGET_S:
        if done == WARM:
            began = time.perf_counter()
            workers.ops.clear()
        bucket.buffer.copy_(gradient)
        reduction.open(None)
        time.sleep(pause_s)
        workers.begin()
        reduction.reduce_bucket(done, 0, bucket)
        workers.end()
        done += 1
    return sum(op.compress_s for op in workers.ops) / (done - WARM)


def fitted(samples: Sequence[TimedLayout]) -> dict[str, FittedCost]:
    """Return the cost of each compressor among `samples`, by the name of its file."""
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


def spelled(cost: Cost) -> dict[str, float]:
    """Return coefficients other than 0 with three digits, as files have them."""
    return {key: float(f"{value:.3g}") for key, value in cost._asdict().items() if value}


def _laid_out(layout: MatrixLayout, device: torch.device) -> tuple[torch.Tensor, BucketBuffers]:
    """Return a gradient, and a bucket for it, with parameters."""
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
