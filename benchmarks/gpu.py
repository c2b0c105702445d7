"""Every compressor's step and the kernels on a GPU, beside what its memory would allow.

    python benchmarks/gpu.py [--sizes 1000000 25000000] [--only topk ...]

A kernel's bound is the bytes that it has to read and write, at the rate of a large copy measured
in the same run; `of bound` is its time as a multiple of that, and the target is 2. A compressor's
step is everything a worker does but sending, as in benchmarks/compression.py; its bound is to read
the gradient, to read and write the residual where it has one, and to write the mean. `beside` is
what the step adds to products of matrices that run at the same time, as a multiple of the step by
itself: 1 would be no overlap at all. Times are medians, on the host's clock around a synchronised
call for steps, by the device's events for kernels. `--only ''` leaves the steps out.
"""

import argparse
import math
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from compression import names, preset, step
from local import Step, gradient
from torch import Tensor

from compressors.buffers import Buffers
from compressors.fused import add_and_take_largest, add_cast_
from compressors.kernels import gpu
from compressors.packing import add_all_signs_, add_pack_signs_
from compressors.stochastic import Grid, add_round_, average_

SIZES = (1_000_000, 25_000_000)  # the largest is ResNet-50
DENSITY = 0.01
WORKERS = 8  # whose contributions are decoded
TARGET = 2.0  # times the bound, of kernels at the largest size
COPIED = 1 << 28  # floats, for the rate of a copy: far more than a cache holds
CALLS, WARM = 15, 3
SLACK = 4  # the cache is filled for so many times as long as the host launches a call
SIDE = 4096  # of the matrices that are multiplied beside


class Kernel(NamedTuple):
    """A call, what is done before it, and the bytes that it must read and write."""

    name: str
    nbytes: float
    prepare: Callable[[], object]
    work: Callable[[], object]


def by_events(prepare: Callable[[], object], work: Callable[[], object]) -> float:
    """Median seconds on the device, with its cache filled by something else before each call.

    It is filled for longer than the host takes to launch the call, whose kernels then wait.
    """
    flushed = torch.empty(1 << 28, device="cuda")
    fill_s = by_host(lambda: None, flushed.zero_)
    launched_s: list[float] = []
    taken = []
    for _ in range(WARM + CALLS):
        prepare()
        torch.cuda.synchronize()
        for _ in range(1 + math.ceil(SLACK * min(launched_s, default=0.0) / fill_s)):
            flushed.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began = time.perf_counter()
        begin.record()
        work()
        end.record()
        launched_s.append(time.perf_counter() - began)
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(taken[WARM:])


def by_host(prepare: Callable[[], object], work: Callable[[], object]) -> float:
    """Median seconds until the device has done what was asked."""
    taken = []
    for _ in range(WARM + CALLS):
        prepare()
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[WARM:])


def copy_rate() -> float:
    """Bytes read and written in a second by a copy."""
    source = torch.empty(COPIED, device="cuda").normal_()
    target = torch.empty_like(source)
    return 2 * source.nbytes / by_events(lambda: None, lambda: target.copy_(source))


def kernels(n: int) -> Iterator[Kernel]:
    """Those of selection, signs, quantisers and casts; `+e` with a residual in the same pass."""
    grad = gradient(n).cuda()
    total, added = grad.clone(), grad.clone()
    k = max(1, int(DENSITY * n))
    capacity, float_ = int(1.25 * k), 4 * n
    threshold = grad.abs().kthvalue(n - k).values
    packed = torch.empty(-(-n // 8), dtype=torch.uint8, device="cuda")
    signs = [gpu.pack_signs(grad) for _ in range(WORKERS)]
    scales = list(torch.full((WORKERS,), 0.125, device="cuda"))
    grid = Grid(torch.arange(512, n + 512, 512).clamp_(max=n), 8)
    steps = torch.empty(grid.ends.numel(), device="cuda")
    half = torch.empty(n, dtype=torch.float16, device="cuda")
    mean = torch.empty(n, device="cuda")

    def fresh() -> None:
        total.copy_(grad)

    def codes(with_added: bool, keep: bool, bits: int = 8) -> Tensor:
        of = grid._replace(width=bits)
        return add_round_(total, added if with_added else None, of, steps, (0,), keep, "max")

    eight: list[tuple[Tensor, ...]] = [
        (codes(False, False).clone(), steps.clone()) for _ in range(WORKERS)
    ]
    two: list[tuple[Tensor, ...]] = [
        (codes(False, False, 2).clone(), steps.clone()) for _ in range(WORKERS)
    ]
    yield Kernel("read (x.sum())", float_, fresh, total.sum)
    yield Kernel("select, threshold known", float_, fresh,
                 lambda: gpu.select_(total, threshold, capacity))  # fmt: skip
    yield Kernel("select, threshold known, +e", 3 * float_, fresh,
                 lambda: gpu.select_(total, threshold, capacity, added))  # fmt: skip
    yield Kernel("top-k, exact, taken out", float_, fresh,
                 lambda: add_and_take_largest(Buffers(total), k))  # fmt: skip
    yield Kernel("top-k, exact, taken out, +e", 3 * float_, fresh,
                 lambda: add_and_take_largest(Buffers(added, total), k))  # fmt: skip
    yield Kernel("signs, encode", float_ + n / 8, fresh,
                 lambda: add_pack_signs_(total, None, packed))  # fmt: skip
    yield Kernel("signs, encode, +e", 3 * float_ + n / 8, fresh,
                 lambda: add_pack_signs_(total, added, packed))  # fmt: skip
    yield Kernel(f"signs, decode {WORKERS}", float_ + WORKERS * n / 8, fresh,
                 lambda: add_all_signs_(mean, signs, scales))  # fmt: skip
    yield Kernel("qsgd, 8 bits, encode", float_ + n, fresh, lambda: codes(False, False))
    yield Kernel("qsgd, 8 bits, encode, +e", 3 * float_ + n, fresh, lambda: codes(True, True))
    yield Kernel("qsgd, 2 bits, encode", float_ + n / 4, fresh,
                 lambda: codes(False, False, 2))  # fmt: skip
    yield Kernel(f"qsgd, 8 bits, decode {WORKERS}", float_ + WORKERS * n, fresh,
                 lambda: average_(mean, grid, eight))  # fmt: skip
    yield Kernel(f"qsgd, 2 bits, decode {WORKERS}", float_ + WORKERS * n / 4, fresh,
                 lambda: average_(mean, grid._replace(width=2), two))  # fmt: skip
    yield Kernel("fp16, encode, +e", 3 * float_ + 2 * n, fresh,
                 lambda: add_cast_(total, added, 8, half, True))  # fmt: skip


def kernel_rows(n: int, rate: float) -> list[str]:
    """Prints the table; names of what misses its target."""
    print(f"\n{n} elements{'':25}{'us':>9}{'GB/s':>8}{'of bound':>10}")
    missed = []
    for each in kernels(n):
        took_s = by_events(each.prepare, each.work)
        bound = took_s / (each.nbytes / rate)
        print(f"{each.name:38}{1e6 * took_s:9.1f}{each.nbytes / took_s / 1e9:8.0f}{bound:10.1f}",
              flush=True)  # fmt: skip
        if bound > TARGET:
            missed.append(f"{each.name}, {n} elements: {bound:.1f} times the bound, not {TARGET:g}")
    return missed


def products(count: int) -> Callable[[], None]:
    a, b = (torch.randn(SIDE, SIDE, device="cuda") for _ in range(2))
    out = torch.empty_like(a)

    def work() -> None:
        for _ in range(count):
            torch.mm(a, b, out=out)

    return work


def beside(one: Step, alone_s: float) -> float:
    """What a step on a stream of its own adds to products on another, in times of `alone_s`."""
    once_s = by_host(lambda: None, products(1))
    multiply = products(max(2, round(2 * alone_s / once_s)))
    products_s = by_host(lambda: None, multiply)
    stream = torch.cuda.Stream()

    def compress() -> None:
        with torch.cuda.stream(stream):
            one.prepare()
            one.work()

    def both() -> None:
        thread = threading.Thread(target=compress)
        thread.start()
        multiply()
        thread.join()

    prepared_s = by_host(lambda: None, one.prepare)
    return (by_host(lambda: None, both) - products_s) / (alone_s + prepared_s)


def step_rows(n: int, rate: float, only: list[str]) -> None:
    print(f"\n{n} elements, a step{'':15}{'ms':>9}{'of bound':>10}{'beside':>8}{'sent MB':>9}")
    grad = gradient(n).cuda()
    for name in only:
        feedback = preset(name)[0]
        one = step(name, grad)
        took_s = by_host(one.prepare, one.work)
        sent = one.workers.sent_bytes / one.step / 1e6
        bound_s = (20 if feedback else 8) * n / rate
        print(f"{name:34}{1e3 * took_s:9.3f}{took_s / bound_s:10.1f}"
              f"{beside(one, took_s):8.2f}{sent:9.2f}", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="*", default=names(), metavar="NAME")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs an NVIDIA GPU and torch with CUDA, and finds none", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    rate = copy_rate()
    triton = "used" if gpu.loops() else "not used"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton}; "
          f"a copy moves {rate / 1e9:.0f} GB/s")  # fmt: skip
    missed = []
    for n in arguments.sizes:
        missed += kernel_rows(n, rate) if n == max(arguments.sizes) else kernel_rows(n, rate)[:0]
        step_rows(n, rate, [name for name in arguments.only if name])
    for failure in missed:
        print(f"missed: {failure}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
