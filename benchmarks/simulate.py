"""Virtual time: what a logical worker's step costs, and how near its times are to real packets'.

    python benchmarks/simulate.py [--quick] [--only cost fidelity]

`cost` is processor time of this process, so that a busy machine tells it too; the gradients and the
compressor are what nobody can save. `fidelity` runs each method with network=netns and then with
network=simulated, paced, and compares the median step. The load is printed: real runs on a busy
machine take longer than their network makes them, which dilation makes smaller.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pandas as pd

from harness import run
from harness.preview import composed

WORKERS, MANY = 4, 1024
MODELS = {"convnet": "digits", "resnet18_cifar": "cifar10"}  # 0.16 and 11 million parameters
COSTED = ("allreduce", "topk_0.1", "topk_0.001", "randomk_0.1", "qsgd", "powersgd")
COMPARED = ("allreduce", "topk_0.01", "topk_0.1", "randomk_0.001", "qsgd", "powersgd")
RATES_MBIT = (50, 400)
DILATION = 5
SETTLING = 3  # steps that are left out


class Cost(NamedTuple):
    """Milliseconds of processor time of one worker's step."""

    total_ms: float
    compress_ms: float  # as the run itself measured


def perform(results: Path, *overrides: str) -> tuple[pd.DataFrame, str]:
    """steps.csv of a run, and how it ended."""
    settings, _ = composed([f"results={results}", "report=false", "rerun=true", *overrides])
    settings.check()
    outcome = run.perform(settings)
    return pd.read_csv(outcome.run_dir / "steps.csv"), outcome.state


def cost(results: Path, method: str, model: str, steps: int) -> Cost:
    """Of replay: gradients cost a copy. Setting up is left out, by the difference of two runs."""
    asked = ["network=simulated", f"method={method}", f"model={model}", f"dataset={MODELS[model]}"]
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
    yield from _trained(results)
    yield from _many(results)


def _trained(results: Path) -> Iterator[str]:
    """A whole training step of the quickstart's model."""
    asked = ["network=simulated", "method=topk_0.1", "emulation.compute=measured", "steps=40"]
    begin = time.process_time()
    rows, _ = perform(results, *asked, "eval_every=1000")
    total_ms = (time.process_time() - begin) * 1000 / 40
    gradients_ms = rows.groupby("step").compute_s.sum().median() * 1000
    yield f"convnet, {WORKERS} workers, top-k: {total_ms:.1f} ms of processor time a step, start"
    yield f"and evaluation included; its {WORKERS} gradients take {gradients_ms:.1f} ms (wall)"


def _many(results: Path) -> Iterator[str]:
    """Timing of a thousand workers: seconds of this machine for an emulated one."""
    asked = ["network=simulated", "network.alike=true", "emulation.compute=replay", "steps=5"]
    asked += ["model=resnet50", "dataset=imagenet", "profile.rate_mbit=10000", f"workers={MANY}"]
    for method in ("allreduce", "topk_0.001"):
        begin = time.monotonic()
        rows, _ = perform(results, *asked, f"method={method}")
        took_s, emulated_s = time.monotonic() - begin, float(rows.time_s.max())
        yield (
            f"resnet50, {MANY} workers at 10 Gbit/s, {method}: {took_s:.1f} s with start for "
            f"{emulated_s:.2f} s, {len(rows) // MANY} steps"
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
                    results, f"network={network}", f"method={method}", f"workers={WORKERS}",
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
    parser.add_argument("--only", nargs="*", choices=["cost", "fidelity"])
    asked = parser.parse_args()
    parts = {"cost": costs, "fidelity": fidelity}
    with TemporaryDirectory() as folder:
        for name in asked.only or parts:
            print(f"load {os.getloadavg()[0]:.1f}", flush=True)
            for line in parts[name](Path(folder), asked.quick):
                print(line, flush=True)


if __name__ == "__main__":
    main()
