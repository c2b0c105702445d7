"""Virtual time: what a logical worker's step costs, and how near its times are to real packets'.

    python benchmarks/simulate.py [--quick] [--only cost linear one_pass replay fidelity]

`cost` is processor time of this process, so that a busy machine tells it too; the gradients and the
compressor are what nobody can save: eight workers are to cost at most 1.15 times eight times one.
`linear` is what a worker costs among more and more of them. `one_pass` is a step of eight whose
gradients come from one pass over all batches, over one in which each computes its own: the same
bits. `replay` is the timing of 1,024 workers for 1,000 steps of ResNet-50 while every link's rate
fluctuates: under 60 s on one core, memory that does not grow with the steps. `fidelity` runs each
method with network=netns and then with network=simulated, paced, and compares the median step. The
load is printed: real runs on a busy machine take longer than their network makes them, which
dilation makes smaller.
"""

import argparse
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pandas as pd

from harness.config.scales import composed
from harness.runner import run
from harness.validation import checked
from harness.virtual.batched import TRIALS
from harness.virtual.replica import Borrowed

WORKERS, MANY = 4, 1024
MODELS = {"convnet": "digits", "resnet18_cifar": "cifar10"}  # 0.16 and 11 million parameters
TOPK, RANDOMK = "topk controller.density={}", "topk compressor=randomk controller.density={}"
COSTED = (
    "allreduce",
    TOPK.format(0.1),
    TOPK.format(0.001),
    RANDOMK.format(0.1),
    "qsgd",
    "powersgd",
)
COMPARED = (
    "allreduce",
    TOPK.format(0.01),
    TOPK.format(0.1),
    RANDOMK.format(0.001),
    "qsgd",
    "powersgd",
)
RATES_MBIT = (50, 400)
DILATION = 5
EIGHT, TRAINED, ROUNDS = 8, 20, 5
SIZES = (4, 8, 16, 32)
SETTLING = 3  # steps that are left out
PARTS = ("cost", "linear", "one_pass", "replay", "fidelity")
STAND_INS = ("mlp_as_resnet50", "mlp_as_vgg16_cifar")


class Cost(NamedTuple):
    """Milliseconds of processor time of one worker's step."""

    total_ms: float
    compress_ms: float  # as the run itself measured


def perform(results: Path, *overrides: str) -> tuple[pd.DataFrame, str]:
    """steps.csv of a run, and how it ended."""
    settings, _ = composed([f"results={results}", "report=false", "rerun=true", *overrides])
    checked(settings)
    outcome = run.perform(settings)
    return pd.read_csv(outcome.run_dir / "steps.csv"), outcome.state


def cost(results: Path, method: str, model: str, steps: int) -> Cost:
    """Of replay: gradients cost a copy. Setting up is left out, by the difference of two runs."""
    asked = [
        "network=simulated",
        *f"method={method}".split(),
        f"model={model}",
        f"dataset={MODELS[model]}",
    ]
    asked += [f"workers={WORKERS}", "emulation.compute=replay", "profile.rate_mbit=100"]
    spent, compress_s = [], 0.0
    for some in (1, 1, 1 + steps):  # the first compiles kernels and reads files
        begin = time.process_time()
        rows, _ = perform(results, *asked, f"steps={some}")
        spent.append(time.process_time() - begin)
        compress_s = float(rows[rows.step > 0].compress_s.sum())
    each = 1000 / (steps * WORKERS)
    return Cost((spent[2] - spent[1]) * each, compress_s * each)


def costs(results: Path, quick: bool) -> Iterator[str]:
    yield f"{'cost of a worker and step (replay)':34} {'ms':>9} {'compressor':>11} {'ratio':>7}"
    for model in MODELS:
        for method in COSTED[:3] if quick else COSTED:
            found = cost(results, method, model, 300 if model == "convnet" else 5)
            ratio = found.total_ms / found.compress_ms if found.compress_ms else float("nan")
            yield (
                f"{model + ' ' + method:34} {found.total_ms:9.2f} {found.compress_ms:11.2f} "
                f"{ratio:7.2f}"
            )
    yield from _trained(results, quick)


def _trained(results: Path, quick: bool) -> Iterator[str]:
    """Whole training steps of the quickstart's model: `EIGHT` workers over as many times one."""
    for method in ("allreduce", TOPK.format(0.1)):
        ratios = []
        for _ in range(1 if quick else ROUNDS):
            one, all_of_them = (step_ms(results, size, method, TRAINED) for size in (1, EIGHT))
            ratios.append(all_of_them / (EIGHT * one))
        yield (
            f"convnet, {method}, trained: {EIGHT} workers over {EIGHT} times one: median "
            f"{median(ratios):.3f} of {len(ratios)} (at most 1.15), {all_of_them:.1f} ms a step"
        )


def step_ms(results: Path, workers: int, method: str, steps: int, *more: str) -> float:
    """Processor time of a step of all workers; setting up and evaluating are left out."""
    asked = ["network=simulated", *f"method={method}".split(), "emulation.compute=measured", *more]
    asked += [f"workers={workers}", "eval_every=100000", "checkpoint_every=null"]
    spent = []
    for some in (TRIALS, TRIALS + steps):
        begin = time.process_time()
        perform(results, *asked, f"steps={some}")
        spent.append(time.process_time() - begin)
    return 1000 * (spent[1] - spent[0]) / steps


def linear(results: Path, quick: bool) -> Iterator[str]:
    """What a worker's step costs among more and more workers."""
    step_ms(results, 2, TOPK.format(0.1), 2)  # what is compiled and read once
    found = {
        n: step_ms(results, n, TOPK.format(0.1), TRAINED) / n for n in SIZES[: 2 if quick else None]
    }
    for workers, each_ms in found.items():
        over = each_ms / found[SIZES[0]]
        yield f"convnet, topk 0.1, trained, {workers:3} workers: {each_ms:6.2f} ms each, {over:.2f}"


def one_pass(results: Path, quick: bool) -> Iterator[str]:
    """What a step of eight takes by one pass over all batches, and by each its own, in turn."""
    more = ["emulation.compute=paced", "network/device=v100", "dataset=glyphs", "batch_size=16"]
    together = Borrowed.is_batched
    for model in STAND_INS[: 1 if quick else None]:
        words, found = (*more, f"model={model}"), []
        step_ms(results, EIGHT, TOPK.format(0.1), 1, *words)  # what is read and made once
        for _ in range(1 if quick else ROUNDS):
            pair = []
            for way in (together, lambda self, task: False):
                Borrowed.is_batched = way  # type: ignore[method-assign]
                pair.append(step_ms(results, EIGHT, TOPK.format(0.1), 10 * TRAINED, *words))
            found.append((pair[0], pair[1]))
        Borrowed.is_batched = together  # type: ignore[method-assign]
        ratio = median(one / alone for one, alone in found)
        one_ms, alone_ms = (median(each) for each in zip(*found, strict=True))
        yield f"{model}, top-k 0.1: {one_ms:.1f} ms in one pass, {alone_ms:.1f}, ratio {ratio:.2f}"


def replay(results: Path, quick: bool) -> Iterator[str]:
    """Timing of a thousand workers under fluctuating links, each on its own."""
    asked = ["network=simulated", "network.alike=true", "emulation.compute=replay"]
    asked += ["model=resnet50", "dataset=imagenet", "profile=fluctuating", f"workers={MANY}"]
    for method in ("allreduce", TOPK.format(0.001)):
        for steps in (50, 100) if quick else (100, 1000):
            begin, cpu = time.monotonic(), time.process_time()
            settings, _ = composed([f"results={results}", "report=false", "rerun=true",
                                    *asked, *f"method={method}".split(),
                                    f"steps={steps}"])  # fmt: skip
            checked(settings)
            outcome = run.perform(settings)
            took_s, cpu_s = time.monotonic() - begin, time.process_time() - cpu
            most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            yield (
                f"resnet50, {MANY} workers, {method}, {steps} steps: {cpu_s:.0f} s of a core "
                f"(at most 60), {took_s:.0f} s, {most_mb:.0f} MB at most, {outcome.state}"
            )


def fidelity(results: Path, quick: bool) -> Iterator[str]:
    head = f"step of {WORKERS} workers, dilation {DILATION}"
    yield f"{head:34} {'netns s':>9} {'simulated':>10} {'ratio':>7}"
    ratios = []
    for rate_mbit in RATES_MBIT[:1] if quick else RATES_MBIT:
        for method in COMPARED[:3] if quick else COMPARED:
            found, states = [], []
            for network in ("netns", "simulated"):
                rows, state = perform(
                    results, f"network={network}", *f"method={method}".split(),
                    f"workers={WORKERS}",
                    f"profile.rate_mbit={rate_mbit}", "emulation.compute=paced", "steps=15",
                    f"emulation.dilation={DILATION}",
                )  # fmt: skip
                ends = rows.groupby("step").time_s.max()
                found.append(float(ends.diff().iloc[SETTLING:].median()))
                states.append(state)
            ratios.append(found[1] / found[0])
            note = "" if states[0] == "succeeded" else f"  netns: {states[0]}"
            name = f"{rate_mbit} Mbit/s {method}"
            yield f"{name:34} {found[0]:9.4f} {found[1]:10.4f} {ratios[-1]:7.3f}{note}"
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    yield f"error: median {errors[len(errors) // 2]:.1%}, worst {errors[-1]:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=PARTS)
    asked = parser.parse_args()
    parts = dict(zip(PARTS, (costs, linear, one_pass, replay, fidelity), strict=True))
    with TemporaryDirectory() as folder:
        for name in asked.only or parts:
            print(f"load {os.getloadavg()[0]:.1f}", flush=True)
            for line in parts[name](Path(folder), asked.quick):
                print(line, flush=True)


if __name__ == "__main__":
    main()
