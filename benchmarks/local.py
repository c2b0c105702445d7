"""One worker's share of a reduction, by itself: its gradient, its time, the memory it asks for."""

import ctypes
import resource
import statistics
import time
from collections.abc import Callable
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.base import Compressor
from controllers.fixed import Fixed
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.reduction import BucketBuffers, Reduction

LAYER = (512, 256, 3, 3)  # a convolution of ResNet-50; after it comes the scale and shift of a norm
SCALES = 100  # pieces of different scale, so that magnitudes are heavy-tailed as in a real gradient
CALLS, BUDGET_S = (5, 31), 1.0  # fewest and most that are timed; what they may take, about
PAGE = resource.getpagesize()
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, PR_SET_THP_DISABLE = -1, -3, 41
KEPT_BYTES = 1 << 16  # an allocation above this is new memory while `fresh_bytes` counts

Job = tuple[Callable[[], object], Callable[[], object]]  # prepare, work


class Alone:
    """The only worker: nothing is sent, but it is counted what would be."""

    rank, world_size = 0, 1
    sent_bytes = 0

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        self.sent_bytes += tensor.nbytes
        return tensor

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        self.sent_bytes += sum(tensor.nbytes for tensor in tensors)
        return [tensors]

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        self.sent_bytes += sum(column[0].nbytes for column in pieces)
        return [tuple(column[0] for column in pieces)]

    def agree(self, value: float, how: str) -> float:
        return value

    def all_reduce_min(self, values: list[float]) -> list[float]:
        return values


def gradient(n: int, seed: int = 0) -> Tensor:
    """Normal within a piece, log-normal scale across pieces, [n]."""
    source = torch.Generator().manual_seed(seed)
    scales = torch.randn(SCALES, generator=source).exp()
    return torch.randn(n, generator=source) * scales.repeat_interleave(-(-n // SCALES))[:n]


def parameters(n: int) -> dict[str, tuple[int, ...]]:
    """Shapes of layers that have n elements together; the last one has fewer channels."""
    found: dict[str, tuple[int, ...]] = {}
    while n > 0:
        channels = min(LAYER[0], max(1, n // (prod(LAYER[1:]) + 2)))
        for kind, shape in (("weight", (channels, *LAYER[1:])), ("norm", (2 * channels,))):
            if prod(shape) > n:
                shape = (n,)
            if n:
                found[f"{len(found)}.{kind}"] = shape
            n -= prod(shape)
    return found


class Step:
    """One worker that reduces the same gradient at every call, as a run does it."""

    def __init__(
        self,
        compressor: Compressor,
        grad: Tensor,
        density: float,
        feedback: bool,
        workers: Alone | None = None,
    ) -> None:
        self.workers = workers or Alone()
        self.grad, self.buffer = grad, grad.clone()
        shapes = parameters(grad.numel())
        parts = self.buffer.split([prod(shape) for shape in shapes.values()])
        views = [p.view(shape) for p, shape in zip(parts, shapes.values(), strict=True)]
        self.laid, self.step = BucketBuffers(self.buffer, tuple(shapes), views), 0
        kept = Residual() if feedback else NoFeedback()
        self.reduction = Reduction(compressor, Fixed(density), "local", kept, self.workers)
        self.reduction.open(None)

    def prepare(self) -> None:
        """What backward does before."""
        self.buffer.copy_(self.grad)

    def work(self) -> None:
        self.reduction.reduce_bucket(self.step, 0, self.laid)
        self.step += 1


class Times(NamedTuple):
    """Medians in seconds, measured in turn."""

    read: float  # of x.sum()
    work: list[float]


def measure(x: Tensor, *jobs: Job) -> Times:
    """Times of every (prepare, work); `prepare` is not timed.

    With one thread it is that thread's time on a core, so that other load disturbs less.
    """
    reading: Job = (_nothing, x.sum)
    clock: Callable[[], float]
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    for _ in range(2):
        begin = time.perf_counter()
        for prepare, work in jobs:
            prepare()
            work()
        once_s = time.perf_counter() - begin
    fewest, most = CALLS
    spent: list[list[float]] = [[] for _ in range(1 + len(jobs))]
    for _ in range(min(most, max(fewest, int(BUDGET_S / once_s)))):
        for taken, (prepare, work) in zip(spent, [reading, *jobs], strict=True):
            prepare()
            begin = clock()
            work()
            taken.append(clock() - begin)
    read, *rest = map(statistics.median, spent)
    return Times(read, rest)


def fresh_bytes(prepare: Callable[[], object], work: Callable[[], object]) -> int:
    """Memory that a call of `work` asks the system for, and touches, beyond what it holds.

    Large allocations are made to be new pages, those that were freed are given back, and the page
    faults are counted: that sees torch, numpy and compiled code alike. Needs glibc, on Linux.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # a huge page would be one fault
    libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    counts = []
    for _ in range(3):
        prepare()
        libc.malloc_trim(0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        work()
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
    libc.prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0)
    return PAGE * min(counts)


def _nothing() -> None:
    pass
