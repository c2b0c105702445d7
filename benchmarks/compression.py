"""Local work of every compressor of conf/compressor, as a multiple of one read of the gradient.

    python benchmarks/compression.py [--full] [--sizes 1000000 ...] [--threads 1] [--only NAME ...]

A step is all that a worker does in a run but sending: check the gradient, add the residual where
its method keeps one, compress, decompress and average its own contribution, keep what is left.
Medians, in turn with x.sum(), with memory allocated as in a run (MALLOC_*). `own` is what targets
are for: a step less the check of the gradient where that is a read of its own (as it is all of the
dense step), the whole step where the compressor checks. `fresh` is the memory a step asks the
system for, at most 1 MB, `sent` what it sends. Then parts of a step, and plain torch code for some
of the same algorithms. Ends with 1 when one thread misses a target. `--full`: two threads as well,
which says little when other work runs, and plain code at every size.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import instantiate
from local import Alone, Step, Times, fresh_bytes, gradient, measure, parameters
from omegaconf import OmegaConf
from plain import PLAIN
from torch import Tensor

from compressors import kernels
from compressors.chunks import add_find_, chunks_of
from compressors.fused import add_cast_
from compressors.packing import add_pack_signs_
from compressors.randomk import RandomK
from compressors.sparse import sum_
from compressors.stochastic import Grid, add_measure_, add_round_, average_
from compressors.topk_select import largest
from harness.config.search_path import choices
from harness.records.environment import ALLOCATOR

SIZES = (1_000_000, 8_000_000, 25_000_000)  # the largest is ResNet-50
DENSITY = 0.01  # of compressors that have a level and are not meant for all of the gradient
WORKERS = 8  # whose contributions are added
ADDED = f"add {WORKERS} sparse contributions"
BESIDE = {ADDED: f"{ADDED}, torch"}  # that must not take less
TRAFFIC = (WORKERS + 4) / 4  # of decoding bytes into floats, in reads
TARGETS = {  # at most, in reads of 25 M elements by one thread
    "topk": 3.5,
    "topk, selection only": 2.5,
    "chunks, largest and feedback": 4.0,
    "sampled_topk": 3.0,
    "randomk, no residual": 1.5,
    "qsgd, encode": 2.5,
    "terngrad, encode": 2.5,
    "signs, encode": 2.0,
    "fp16, encode": 2.0,
    "bf16, encode": 2.0,
    "powersgd": 10.0,
    "acp_sgd": 6.0,
    f"qsgd, decode {WORKERS} contributions": 4 * TRAFFIC,
}
CHECKED_APART = ("covap", "demo", "dense", "dgc", "netsense")  # by a read that is for nothing else
SMALL_FACTOR = 2.0  # by which the ratio of a smaller gradient may exceed that of the largest
FRESH_MB = 1.0  # of any step, at most


class Row(NamedTuple):
    """A measured line of the table."""

    n: int
    threads: int
    name: str
    ratio: float  # to one read, of a step beyond the dense one
    fresh_mb: float = 0.0  # of a step


class Eight(Alone):
    """The first of eight workers that all contribute the same."""

    world_size = WORKERS

    def all_gather(self, *tensors: torch.Tensor, equal: bool = False) -> list:
        return [tensors] * WORKERS


def preset(name: str) -> tuple[bool, float]:
    """Whether a method with compressor `name`, of that name if any, has a residual; its density."""
    for path in sorted(choices("method").values(), key=lambda path: path.stem != name):
        method: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        if {"override /compressor": name} in method["defaults"]:
            default = 1.0 if {"override /controller": "fixed"} in method["defaults"] else DENSITY
            density = method.get("controller", {}).get("density", default)
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
        whole = times.work[0] / times.read
        own = whole - check if name in CHECKED_APART else whole
        row = Row(n, threads, name, own, fresh)
        line(row, times, f"{fresh:9.2f}{sent:9.2f}")
        check = check or whole
        yield row


def parts(n: int, threads: int) -> Iterator[Row]:
    """What steps are made of, and what they would be held against."""
    grad, out = gradient(n), torch.empty(n)
    index = largest(grad, max(1, int(DENSITY * n)))
    values, wire, eight = grad[index], index.int(), Eight()
    eights = [(values, wire, index)] * WORKERS
    dense, random = step("dense", grad), Step(RandomK(), grad, DENSITY, False)
    buffer, codes, signs = grad.clone(), torch.empty(n, dtype=torch.int16), torch.empty(-(-n // 8))
    blocks = Grid(torch.arange(512, n + 512, 512).clamp_(max=n), 8)
    whole = Grid(torch.tensor([n]), 2)
    steps_, scale = torch.empty(blocks.ends.numel()), torch.empty(1)

    def qsgd() -> Tensor:
        return add_round_(buffer, None, blocks, steps_, (0,), False, "max")

    def terngrad() -> Tensor:
        largest_, squares = add_measure_(buffer, None)
        scale[0] = min(largest_, 2.5 * (squares / n).sqrt())
        return add_round_(buffer, None, whole, scale, (0,), False)

    def by_torch() -> None:
        out.zero_()
        for part, _, where in eights:
            out.scatter_add_(0, where, part / WORKERS)

    payload = qsgd().clone(), steps_.clone()
    shapes = [torch.Size(shape) for shape in parameters(n).values()]
    chunks, residual = chunks_of(shapes, 64, 64), gradient(n, 1)  # as SparseLoCo was published
    work: dict[str, Callable[[], object]] = {
        "add_, of another vector": lambda: out.add_(grad),
        "topk, selection only": lambda: largest(grad, index.numel()),
        "chunks, largest and feedback": lambda: add_find_(residual, buffer, True, chunks),
        "qsgd, encode": qsgd,
        "terngrad, encode": terngrad,
        "signs, encode": lambda: add_pack_signs_(buffer, None, signs.view(torch.uint8)),
        "fp16, encode": lambda: add_cast_(buffer, None, 8, codes.view(torch.float16), False),
        "bf16, encode": lambda: add_cast_(buffer, None, 8, codes.view(torch.bfloat16), False),
        f"qsgd, decode {WORKERS} contributions": lambda: average_(out, blocks, [payload] * WORKERS),
        ADDED: lambda: sum_(out, eight.all_gather(values, wire), 1 / WORKERS),
        BESIDE[ADDED]: by_torch,
    }
    jobs = [(lambda: buffer.copy_(grad), one) for one in work.values()]
    times = measure(grad, (dense.prepare, dense.work), (random.prepare, random.work), *jobs)
    check_s, random_s, *each_s = times.work
    each = {"randomk, no residual": random_s - check_s, **dict(zip(work, each_s, strict=True))}
    for name, spent_s in each.items():
        row = Row(n, threads, name, spent_s / times.read)
        line(row, Times(times.read, [spent_s]))
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
    ratios = {(row.n, row.threads, row.name): row.ratio for row in rows}
    for (n, threads, name), ratio in ratios.items():
        if name in BESIDE and threads == 1 and ratio > ratios[n, threads, BESIDE[name]]:
            found.append(f"{name}, {n} elements: slower than plain torch")
    for row in alone:
        limit = TARGETS[row.name]
        if row.n != max(SIZES):
            limit = SMALL_FACTOR * whole[row.name].ratio if row.name in whole else float("inf")
        if row.ratio > limit:
            found.append(f"{row.name}, {row.n} elements: {row.ratio:.1f} reads, not {limit:.1f}")
    for row in (row for row in rows if row.threads == 1):
        if row.fresh_mb > FRESH_MB:
            found.append(f"{row.name}, {row.n} elements: {row.fresh_mb:.1f} MB of fresh memory")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--threads", type=int, nargs="+", default=(1,))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", nargs="+", default=names(), choices=names(), metavar="NAME")
    arguments = parser.parse_args()
    counts = (1, 2) if arguments.full else arguments.threads
    print(f"kernels: {kernels.path()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    rows: list[Row] = []
    for threads in counts:
        torch.set_num_threads(threads)
        for n in arguments.sizes:
            rows += [*steps(n, threads, arguments.only), *parts(n, threads)]
    torch.set_num_threads(1)
    for n in arguments.sizes if arguments.full else arguments.sizes[-1:]:
        beside_plain_code(n, arguments.only)
    for failure in (failures := missed(rows)):
        print(f"missed: {failure}")
    print(f"load {os.getloadavg()[0]:.1f}")
    return 1 if failures else 0


if __name__ == "__main__":
    if any(os.environ.get(key) != value for key, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    sys.exit(main())
