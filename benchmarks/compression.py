"""Local work of every compressor of conf/compressor, as a multiple of one read of the gradient.

    python benchmarks/compression.py [--sizes 1000000 ...] [--threads 1 2] [--only NAME ...]

A step is all that a worker does in a run but sending: check the gradient, add the residual where
its method keeps one, compress, decompress and average its own contribution, keep what is left.
Medians, in turn with x.sum(), with memory allocated as in a run (MALLOC_*). `own` is what a step
takes beyond the dense one, in which only the check is left: what targets are for. `fresh` is the
memory a step asks the system for, `sent` what it sends. Then parts of a step, and plain torch code
for some of the same algorithms. Ends with 1 when one thread misses a target.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import instantiate
from local import Alone, Step, Times, fresh_bytes, gradient, measure
from omegaconf import OmegaConf
from plain import PLAIN

from compressors import kernels
from compressors.magnitude import largest
from compressors.qsgd import QSGD
from compressors.sparse import average
from harness.environment import ALLOCATOR

SIZES = (1_000_000, 8_000_000, 25_000_000)  # the largest is ResNet-50
DENSITY = 0.01  # of compressors that have a level and are not meant for all of the gradient
WORKERS = 8  # whose contributions are added
TARGETS = {  # at most, in reads of 25 M elements by one thread
    "topk": 3.5,
    "topk, selection only": 2.5,
    "sampled_topk": 3.0,
    "powersgd": 10.0,
    "acp_sgd": 6.0,
}
SMALL_FACTOR = 2.0  # by which the ratio of a smaller gradient may exceed that of the largest
FRESH_MB, COPIES = 1.0, 3  # of a step that has a target, at most: this, and copies of what it sends


class Row(NamedTuple):
    """A measured line of the table."""

    n: int
    threads: int
    name: str
    ratio: float  # to one read, of a step beyond the dense one
    excess_mb: float = 0.0  # fresh memory of a step beyond COPIES of what it sends


class Eight(Alone):
    """The first of eight workers that all contribute the same."""

    size = WORKERS

    def all_gather(self, *tensors: torch.Tensor, equal: bool = False) -> list:
        return [tensors] * WORKERS


def preset(name: str) -> tuple[bool, float]:
    """Whether the first method with compressor `name` keeps a residual, and its density."""
    for path in sorted(Path("conf/method").glob("*.yaml")):
        method: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        if {"override /compressor": name} in method["defaults"]:
            density = method.get("controller", {}).get("density", DENSITY)
            return method["error_feedback"], 1.0 if density == 1.0 else DENSITY
    return False, DENSITY


def compressor(name: str) -> Any:
    part = OmegaConf.load(Path("conf/compressor", f"{name}.yaml"))
    return instantiate(OmegaConf.create({"seed": 0, "part": part}).part)


def step(name: str, grad: torch.Tensor) -> Step:
    feedback, density = preset(name)
    return Step(compressor(name), grad, density, feedback)


def names() -> list[str]:
    return sorted(path.stem for path in Path("conf/compressor").glob("*.yaml"))


def line(row: Row, times: Times, memory: str = "") -> None:
    aims = row.threads == 1 and row.n == max(SIZES) and row.name in TARGETS
    target = f"<= {TARGETS[row.name]:g}" if aims else ""
    whole_s = times.work[0]
    print(
        f"{row.name:36}{1e3 * whole_s:9.2f}{whole_s / times.read:9.1f}{row.ratio:7.1f} {target:7}"
        f"{memory}",
        flush=True,
    )


def steps(n: int, threads: int, only: list[str]) -> Iterator[Row]:
    """Every compressor's whole step."""
    grad, check = gradient(n), 0.0
    print(f"\n{n} elements, threads: {threads:<13}{'ms':>9}{'/x.sum()':>9}{'own':>7}"
          f" target {'fresh':>9}{'sent MB':>9}")  # fmt: skip
    for name in ["dense", *(one for one in names() if one in only and one != "dense")]:
        one = step(name, grad)
        times = measure(grad, (one.prepare, one.work))
        fresh = fresh_bytes(one.prepare, one.work) / 1e6
        sent = one.workers.sent_bytes / one.step / 1e6
        row = Row(n, threads, name, times.work[0] / times.read - check, fresh - COPIES * sent)
        line(row, times, f"{fresh:9.2f}{sent:9.2f}")
        check = check or row.ratio
        yield row


def parts(n: int, threads: int) -> Iterator[Row]:
    """What steps are made of, and what they would be held against."""
    grad, out = gradient(n), torch.empty(n)
    index = largest(grad, max(1, int(DENSITY * n)))
    values, wire, eight = grad[index], index.int(), Eight()
    coded = Step(QSGD(), grad, 1.0, False, eight)
    for name, work in (
        ("add_, of another vector", lambda: out.add_(grad)),
        ("topk, selection only", lambda: largest(grad, index.numel())),
        (f"add {WORKERS} sparse contributions", lambda: average(values, wire, n, eight)),
        (f"qsgd, {WORKERS} contributions to average", coded.work),
    ):
        prepare: Callable[[], object] = coded.prepare if work == coded.work else out.zero_
        times = measure(grad, (prepare, work))
        row = Row(n, threads, name, times.work[0] / times.read)
        line(row, times)
        yield row


def beside_plain_code(n: int, only: list[str]) -> None:
    """Plain torch code for the same step, in turn with ours."""
    grad = gradient(n)
    print(f"\n{n} elements, plain torch{'':12}{'ms':>10}  /x.sum()   / ours")
    for name in (one for one in PLAIN if one in only):
        ours, plain = step(name, grad), PLAIN[name](grad)
        times = measure(grad, (ours.prepare, ours.work), (plain.prepare, plain.work))
        own_s, plain_s = times.work
        print(
            f"{name:36}{1e3 * plain_s:10.2f}{plain_s / times.read:8.1f}{plain_s / own_s:10.1f}",
            flush=True,
        )


def missed(rows: list[Row]) -> list[str]:
    """What is beyond its target, of the rows of one thread."""
    alone = [row for row in rows if row.threads == 1 and row.name in TARGETS]
    whole = {row.name: row for row in alone if row.n == max(SIZES)}
    found = []
    for row in alone:
        limit = TARGETS[row.name]
        if row.n != max(SIZES):
            limit = SMALL_FACTOR * whole[row.name].ratio if row.name in whole else float("inf")
        if row.ratio > limit:
            found.append(f"{row.name}, {row.n} elements: {row.ratio:.1f} reads, not {limit:.1f}")
        if row.excess_mb > FRESH_MB:
            found.append(f"{row.name}, {row.n} elements: {row.excess_mb:.1f} MB of fresh memory")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--only", nargs="+", default=names(), choices=names(), metavar="NAME")
    arguments = parser.parse_args()
    print(f"kernels: {kernels.path()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    rows: list[Row] = []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        for n in arguments.sizes:
            rows += [*steps(n, threads, arguments.only), *parts(n, threads)]
    torch.set_num_threads(1)
    for n in arguments.sizes:
        beside_plain_code(n, arguments.only)
    for failure in (failures := missed(rows)):
        print(f"missed: {failure}")
    print(f"load {os.getloadavg()[0]:.1f}")
    return 1 if failures else 0


if __name__ == "__main__":
    if any(os.environ.get(key) != value for key, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    sys.exit(main())
