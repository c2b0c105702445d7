"""What compressors take on one core of this machine, measured as virtual time would."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from harness.config.device_costs import file_of
from harness.config.parts import choices, has_level, replaces
from harness.config.run import Run
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.training.build import reduction_of
from harness.preview import composed
from harness.virtual.circle import Circle
from harness.virtual.network import Simulated
from harness.virtual.workers import HomogeneousWorkers
from harness.virtual.world import World
from profiles.static import Static

WORKERS = 4  # whose pieces are decompressed
ELEMENTS = (1 << 12, 1 << 15, 1 << 18, 1 << 20)
COLUMNS, VECTOR = 256, 64  # of a bucket: a matrix and a vector
DENSITIES = (0.1, 0.01, 0.001)
WARM, FEWEST, BUDGET_S = 2, 4, 0.04  # calls that are not timed, timed at least, and for how long


class Timed(NamedTuple):
    """Processor seconds per bucket, the mean of several steps, of one method."""

    compressor: str  # the file it is in
    method: str  # what it is called
    elements: int
    seconds: float


def compositions(densities: Sequence[float] = DENSITIES) -> Iterator[list[str]]:
    """Every compressor with error feedback, where it has none of its own, at its densities."""
    for name, section in choices("compressor").items():
        target = section["_target_"]
        feedback = "error_feedback" not in replaces(target)
        for density in densities if has_level(target) else (1.0,):
            yield [f"compressor={name}", f"controller.density={density}",
                   f"error_feedback={str(feedback).lower()}"]  # fmt: skip


def measured(
    composed_of: Iterable[Sequence[str]], elements: Sequence[int] = ELEMENTS
) -> Iterator[Timed]:
    """Times of what overrides compose to, at the density that each begins with, on one thread.

    Of methods whose compressor, feedback and beginning are the same, the first is measured.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as a rank that shares the machine; threads that wait would count
    try:
        yield from _measured(composed_of, elements)
    finally:
        torch.set_num_threads(before)


def _measured(composed_of: Iterable[Sequence[str]], elements: Sequence[int]) -> Iterator[Timed]:
    known = set()
    for overrides in composed_of:
        run = composed([*overrides, f"workers={WORKERS}"])[0].run()
        compressor, density = run.compressor(), run.controller().density(None)
        same = str((compressor, run.error_feedback, density))
        if same in known:
            continue
        known.add(same)
        for size in elements:
            seconds = seconds_of(run, *_bucket(size), torch.device("cpu"))
            yield Timed(file_of(compressor), run.label, size, seconds)


def seconds_of(
    run: Run, gradient: torch.Tensor, bucket: BucketBuffers, device: torch.device
) -> float:
    """Mean of several steps on a bucket of `device`, as compressors differ between theirs."""
    costs = Simulated().costs(Static(rate_mbit=1e6), WORKERS, 1)
    circle = Circle(World(device), 1)
    workers = HomogeneousWorkers(0, WORKERS, circle, costs, device, seconds_per_second=1.0)
    reduction = reduction_of(run, workers)
    began, done = 0.0, 0
    while done < WARM + FEWEST or time.perf_counter() - began < BUDGET_S:
        if done == WARM:
            began = time.perf_counter()
            workers.ops.clear()
        bucket.buffer.copy_(gradient)
        reduction.open(None)
        workers.begin()
        reduction.reduce(done, 0, bucket)
        workers.end()
        done += 1
    return sum(op.compress_s for op in workers.ops) / (done - WARM)


def _bucket(elements: int) -> tuple[torch.Tensor, BucketBuffers]:
    """A gradient, and a bucket for it."""
    noise = torch.Generator().manual_seed(0)
    gradient, parameters = (torch.randn(elements, generator=noise) for _ in range(2))
    buffer, rows = torch.empty(elements), (elements - VECTOR) // COLUMNS
    shapes = [(rows, COLUMNS), (elements - rows * COLUMNS,)]
    sizes = [rows * COLUMNS, elements - rows * COLUMNS]
    views = [
        [part.view(shape) for part, shape in zip(each.split(sizes), shapes, strict=True)]
        for each in (buffer, parameters)
    ]
    return gradient, BucketBuffers(buffer, ("weight", "bias"), *views)
