"""Durations of real collectives on shaped links here: one rank a node, on CPUs, no computation.

They run on the exchange thread of a step, so handing work to it and back counts. `python -m
harness.calibrate.links PLAN` prints samples as JSON. It must be process 1 of namespaces of its own,
which `measured` provides.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist

from harness.calibrate.ranks import group_of_all, on_ranks
from harness.clock import Clock
from harness.emulation import user_namespace
from harness.engine.exchange.bucket_lanes import CollectiveThread
from harness.engine.exchange.collectives import Workers
from harness.locks import machine_to_ourselves
from harness.records import environment

COLLECTIVES = ("all_reduce", "all_gather")
LEAST_BYTES = 64  # of a tensor, whose time is all latency
LASTING_S = (0.02, 0.06, 0.24)  # what larger ones take, most of it for their bytes
PAUSE_S = 0.05  # before each, as between the exchanges of paced training: ranks sleep
BUCKETS = 8  # all-reduces in a row, as a step has them
LIMIT_S = 900


class MeasurementGrid(NamedTuple):
    """Grid of measurements: every collective at every rate with every number of nodes."""

    nodes: tuple[int, ...] = (2, 4, 8)
    rates_mbit: tuple[float, ...] = (10, 50, 200, 800)  # the first as dilated links are
    repeats: int = 15


class Sample(NamedTuple):
    """One collective after a pause, timed from the last rank's begin to the last rank's end."""

    collective: str  # all_reduce | all_gather
    nodes: int
    rate_mbit: float
    nbytes: int  # reduced, or of each piece gathered
    times_s: Sequence[float]  # real, of its repetitions, one after the other
    buckets: int = 1  # number of buckets in a row, without a pause

    @property
    def seconds(self) -> float:
        """Median duration of the repetitions, in seconds."""
        return statistics.median(self.times_s)

    @property
    def short(self) -> bool:
        """True if messages dominate the duration, not bytes."""
        return self.nbytes <= LEAST_BYTES


class CalibrationError(RuntimeError):
    """The links of this machine could not be measured."""


def measured(plan: MeasurementGrid) -> list[Sample]:
    """Measure `plan` while no run is active. Raise CalibrationError if that fails."""
    command = user_namespace.command(sys.executable, "-m", __name__, json.dumps(plan))
    with machine_to_ourselves("measuring its links"):
        inside = os.environ | environment.ALLOCATOR
        done = subprocess.run(command, env=inside, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CalibrationError(
            f"real collectives could not be measured: {said[-1]}; `python -m harness.doctor` says "
            "what this machine can emulate, and --only compression does without"
        )
    return [Sample(*row) for row in json.loads(done.stdout)]


def take(plan: MeasurementGrid) -> list[Sample]:
    """Time the collectives of `plan` in namespaces of this machine, and return the samples."""
    found = []
    for nodes in plan.nodes:
        for rate_mbit in plan.rates_mbit:
            cases = _cases(nodes, rate_mbit)
            by_rank = on_ranks(nodes, rate_mbit, _times, plan.repeats, cases)
            for (collective, nbytes, buckets), *times in zip(cases, *by_rank, strict=True):
                times_s = [_took_s(repetition) for repetition in zip(*times, strict=True)]
                found.append(Sample(collective, nodes, rate_mbit, nbytes, times_s, buckets))
    return found


def _cases(nodes: int, rate_mbit: float) -> list[tuple[str, int, int]]:
    """Return (collective, bytes of its tensor, repetitions in a row) for each measurement."""
    found = []
    for collective in COLLECTIVES:
        hops = (nodes - 1) * (2 / nodes if collective == "all_reduce" else 1)
        lasting = [int(rate_mbit * 125_000 * each / hops / 4) * 4 for each in LASTING_S]
        found += [(collective, nbytes, 1) for nbytes in (LEAST_BYTES, *lasting)]
        if collective == "all_reduce":
            found.append((collective, lasting[0], BUCKETS))
    return found


def _took_s(by_rank: Sequence[tuple[float, float]]) -> float:
    """Return seconds from the last rank's start to the last rank's end, without late starts."""
    begun_s, done_s = zip(*by_rank, strict=True)
    return max(done_s) - max(begun_s)


def _times(repeats: int, cases: list[tuple[str, int, int]]) -> list[list[tuple[float, float]]]:
    """Return begin and end of every repetition of every case on this rank."""
    clock = Clock()
    clock.start()
    wire = CollectiveThread(Workers(group_of_all()), clock)
    found = [[_time(wire, *case) for _ in range(repeats + 1)][1:] for case in cases]
    wire.close()
    return found


def _time(
    wire: CollectiveThread, collective: str, nbytes: int, buckets: int
) -> tuple[float, float]:
    tensor = torch.ones(nbytes // 4)
    latest = torch.tensor(time.monotonic(), dtype=torch.float64)  # one clock: they are processes
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    time.sleep(max(0.0, latest.item() + PAUSE_S - time.monotonic()))
    begun_s = time.monotonic()
    sent = [wire.post(partial(_do, wire.workers, collective, tensor), 0.0) for _ in range(buckets)]
    for each in sent:
        each.result()
    return begun_s, time.monotonic()


def _do(workers: Workers, collective: str, tensor: torch.Tensor) -> None:
    if collective == "all_reduce":
        workers.all_reduce(tensor)
    else:
        workers.all_gather(tensor, equal=True)


if __name__ == "__main__":
    nodes, rates_mbit, repeats = json.loads(sys.argv[1])
    print(json.dumps(take(MeasurementGrid(tuple(nodes), tuple(rates_mbit), repeats))))
