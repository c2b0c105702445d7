"""Local work of every compressor on one CPU thread, as a multiple of one read of the gradient.

    python benchmarks/compression.py [elements]

Medians, interleaved with x.sum(). There is one worker, so nothing is sent, but everything else is
done: select, take out, and add into a fresh mean. Memory is allocated as in a run (MALLOC_*).
"""

import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from compressors import kernels
from compressors.base import Bucket, Compressor
from compressors.dense import Dense
from compressors.ef_signsgd import EFSignSGD
from compressors.magnitude import add_largest_, largest
from compressors.randomk import RandomK
from compressors.sampled_topk import SampledTopK
from compressors.sparse import take_out_
from compressors.topk import TopK
from harness.environment import ALLOCATOR

ELEMENTS = 25_000_000  # ResNet-50
LAYERS = 100  # of different scale, so that magnitudes are heavy-tailed as in a real gradient
CALLS = 9
DENSITIES = (0.001, 0.01, 0.1)


class Alone:
    """The only worker."""

    rank, size = 0, 1

    def all_reduce(self, tensor: Tensor) -> Tensor:
        return tensor

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        return [tensors]


def gradient(n: int) -> Tensor:
    """Normal within a layer, log-normal scale across layers, [n]."""
    source = torch.Generator().manual_seed(0)
    scales = torch.randn(LAYERS, generator=source).exp()
    return torch.randn(n, generator=source) * scales.repeat_interleave(-(-n // LAYERS))[:n]


def compare(work: Callable[[], object], prepare: Callable[[], object], read: Tensor) -> str:
    """Median time of `work` and its ratio to a read of `read`; `prepare` goes before, untimed."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(CALLS):
        prepare()
        for job, spent in zip((read.sum, work), times, strict=True):
            begin = time.perf_counter()
            job()
            spent.append(time.perf_counter() - begin)
    floor_s, work_s = map(statistics.median, times)
    return f"{1e3 * work_s:8.2f} ms {work_s / floor_s:7.1f}"


def main(n: int) -> None:
    torch.set_num_threads(1)
    original = gradient(n)
    grad = original.clone()
    print(f"kernels: {kernels.path()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{n} elements, one thread{'':28}{'time':>8}    / x.sum()")

    def report(name: str, work: Callable[[], object]) -> None:
        print(f"{name:50} {compare(work, lambda: grad.copy_(original), original)}", flush=True)

    def reduction(compressor: Compressor, density: float) -> Callable[[], object]:
        bucket = Bucket(0, 0, grad, [grad], ("all",))
        return lambda: compressor.reduce(bucket, density, Alone())

    report("zeros(n), the floor of a sparse mean", lambda: torch.zeros(n))
    report("dense", reduction(Dense(), 1.0))
    for density in DENSITIES:
        k = int(density * n)
        report(f"topk {density}", reduction(TopK(), density))
        report(f"topk {density}, selection only", lambda k=k: largest(grad, k))
        report(
            f"topk {density}, adding a residual",
            lambda k=k: take_out_(grad, add_largest_(grad, original, k)),
        )
        report(f"sampled_topk {density}", reduction(SampledTopK(), density))
        report(f"randomk {density}, shared", reduction(RandomK(), density))
        report(f"randomk {density}, per worker", reduction(RandomK(shared=False), density))
    report("ef_signsgd", reduction(EFSignSGD(), 1.0))
    report("torch.topk 0.01, for comparison", lambda: grad.abs().topk(n // 100, sorted=False))


if __name__ == "__main__":
    if any(os.environ.get(key) != value for key, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ELEMENTS)
