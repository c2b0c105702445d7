"""What one core of this machine computes, sorts and compresses: constants of a device of cores.

Of layers as the model has that `dct_fig8a` stands for, one thread: multiply-adds of a second in
forward and backward of a micro-batch, and seconds an element to sort a gradient for a threshold
(over log2 of its length), to partition it, and to pass over it with a threshold that is known
(DCT-DP, 5 %). Medians of processor time; `--mhz` tells another clock, to which all are scaled.

    python benchmarks/core.py --mhz 2000
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable
from math import log2
from pathlib import Path

import torch
from torch import nn

from compressors.buffers import Buffers
from compressors.dct_dp import by_sort
from compressors.fused import add_and_take_reaching_each
from compressors.topk_select import reached_at

WIDTH, LAYERS, BATCH = 512, 5, 316
DENSITY = 0.05
REPEATS = 15


def median_s(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        work()
        taken.append(time.thread_time() - begin)
    return statistics.median(taken)


def multiply_adds_per_s() -> float:
    """Of forward and backward of fully-connected layers with rectifiers."""
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model, inputs = nn.Sequential(*layers), torch.randn(BATCH, WIDTH, requires_grad=True)
    took_s = median_s(lambda: model(inputs).sum().backward())
    return 3 * BATCH * LAYERS * WIDTH * WIDTH / took_s


def clock_mhz() -> float:
    """Of the first core, as Linux tells it."""
    found = re.search(r"cpu MHz\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text())
    assert found, "/proc/cpuinfo tells no clock"
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mhz", type=float, help="of the core that is told of; this one's")
    here, there = clock_mhz(), parser.parse_args().mhz or clock_mhz()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    slower, n = here / there, WIDTH * WIDTH
    gradient = torch.randn(n)

    def search_ns(search: Callable[[torch.Tensor, float], object]) -> float:
        return slower * 1e9 * median_s(lambda: search(gradient, DENSITY)) / n

    print(f"a core of {here:.0f} MHz, as one of {there:.0f} MHz")
    print(f"  multiply-adds   {1e-9 * multiply_adds_per_s() / slower:8.1f} G/s")
    print(f"  sort_ns         {search_ns(by_sort) / log2(n):8.2f} for an element, times log2 n")
    print(f"  partition_ns    {search_ns(reached_at):8.2f} for an element")
    threshold = by_sort(gradient, DENSITY)

    def passes() -> None:
        buffers = Buffers(gradient.clone(), torch.zeros(n))
        buffers.split([n])
        add_and_take_reaching_each(buffers, [threshold])

    both_s = median_s(passes)
    copy_s = median_s(lambda: (gradient.clone(), torch.zeros(n)))
    print(f"  element_ns      {slower * 1e9 * (both_s - copy_s) / n:8.2f} for an element")


if __name__ == "__main__":
    main()
