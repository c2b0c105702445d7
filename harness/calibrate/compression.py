"""What compressors take on one core of this machine, measured as virtual time would."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from harness.preview import CONF, composed
from harness.settings import Settings
from harness.simulate.compression import file_of
from harness.simulate.network import Simulated
from harness.simulate.turns import Turns
from harness.simulate.workers import Alike
from harness.training.assembly import reduction_of
from profiles.static import Static

WORKERS = 4  # whose pieces are decompressed
ELEMENTS = (1 << 12, 1 << 15, 1 << 18, 1 << 20)
COLUMNS, VECTOR = 256, 64  # of a bucket: a matrix and a vector
WARM, FEWEST, BUDGET_S = 2, 4, 0.04  # calls that are not timed, timed at least, and for how long


class Timed(NamedTuple):
    """What a bucket took: processor seconds, the mean of some steps."""

    compressor: str  # the file it is in
    method: str
    elements: int
    seconds: float


def methods() -> list[str]:
    """Every preset."""
    return sorted(path.stem for path in (Path(CONF) / "method").glob("*.yaml"))


def measured(names: Sequence[str], elements: Sequence[int] = ELEMENTS) -> Iterator[Timed]:
    """Times of the methods `names`, at the density that each begins with, on one thread.

    Of methods whose compressor, feedback and beginning are the same, the first is measured.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as a rank that shares the machine; threads that wait would count
    try:
        yield from _measured(names, elements)
    finally:
        torch.set_num_threads(before)


def _measured(names: Sequence[str], elements: Sequence[int]) -> Iterator[Timed]:
    known = set()
    for name in names:
        settings = composed([f"method={name}", f"workers={WORKERS}"])[0]
        density = settings.build("controller").density(None)
        same = str((settings["compressor"], settings["error_feedback"], density))
        if same in known:
            continue
        known.add(same)
        for size in elements:
            yield Timed(file_of(settings["compressor"]), name, size, _seconds(settings, size))


def _seconds(settings: Settings, elements: int) -> float:
    """Mean of several steps, as compressors differ between theirs."""
    turns = Turns(1, lambda rank: None)
    costs = Simulated().costs(Static(rate_mbit=1e6), WORKERS, 1)
    workers = Alike(0, WORKERS, turns, costs, torch.device("cpu"), seconds_per_second=1.0)
    reduction = reduction_of(settings, workers)
    gradient, names, buffer, parts, parameters = _bucket(elements)
    began, done = 0.0, 0
    while done < WARM + FEWEST or time.perf_counter() - began < BUDGET_S:
        if done == WARM:
            began, workers.compress_s = time.perf_counter(), 0.0
        buffer.copy_(gradient)
        reduction.open(None)
        workers.begin(0.0)
        reduction.reduce(done, 0, names, parts, buffer, parameters)
        workers.pause()
        done += 1
    turns.close()
    return workers.compress_s / (done - WARM)


def _bucket(elements: int) -> tuple:
    """A gradient, and the buffer, views and parameters of a bucket that has it."""
    noise = torch.Generator().manual_seed(0)
    gradient, parameters = (torch.randn(elements, generator=noise) for _ in range(2))
    buffer, rows = torch.empty(elements), (elements - VECTOR) // COLUMNS
    shapes = [(rows, COLUMNS), (elements - rows * COLUMNS,)]
    sizes = [rows * COLUMNS, elements - rows * COLUMNS]
    views = [
        [part.view(shape) for part, shape in zip(each.split(sizes), shapes, strict=True)]
        for each in (buffer, parameters)
    ]
    return gradient, ("weight", "bias"), buffer, *views
