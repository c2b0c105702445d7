"""What the proof of a run costs it, in processor time: with it and without, turn by turn.

rank:        collectives of a step, with and without their rows of collectives.csv
supervisor:  a sample of all links, with and without the kernel's rates and notifications;
             a look at every rank, every 0.2 s; at logs, every 0.02 s; links' bytes against their
             plan, once; interfaces of the switch and of all nodes read back, three times
in all:      seconds of a run, if ranks waited for all of it        target <= 2 %

    python benchmarks/proof.py [--nodes 4] [--mbit 200] [--steps 60]
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from pyroute2 import IPRoute

from harness.calibrate.ranks import enclosed, group_of_all, on_ranks
from harness.clock import Clock
from harness.emulation import links
from harness.emulation.star import Star
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.stats import CollectivesTable
from harness.records.run_directory import Table
from harness.runner import delivery
from harness.runner.first_process import POLL_S
from harness.runner.limits import Limits
from harness.runner.pauses import LOOK_S, Pauses
from profiles.static import Static

BUCKETS, BUCKET_BYTES = 8, 250_000  # of a step: many and small ones cost most
SAMPLE_S = 0.1  # the shortest of conf/
ROUNDS = 100


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float  # user and system, of this process


def cost(action: Callable[[], object]) -> Cost:
    began = time.monotonic(), time.process_time()
    action()
    return Cost(time.monotonic() - began[0], time.process_time() - began[1])


def medians(costs: Iterable[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def of_rank(folder: str, steps: int) -> tuple[Cost, Cost]:
    """Medians of a step with rows and of one without."""
    clock, workers = Clock(), Workers(group_of_all())
    clock.start()
    rows = CollectivesTable(Path(folder), workers.rank, workers, clock)
    bucket = torch.ones(BUCKET_BYTES // 4)

    def step(forget: Callable[[], object]) -> None:
        for _ in range(BUCKETS):
            workers.all_reduce(bucket)
        forget()
        workers.intervals.clear()

    step(workers.counted.clear)  # the first finds the connections cold
    turns = [
        (cost(partial(step, partial(rows.write, 0.0))), cost(partial(step, workers.counted.clear)))
        for _ in range(steps)
    ]
    proved, bare = zip(*turns, strict=True)
    return medians(proved), medians(bare)


def of_samples(nodes: int, mbit: float) -> tuple[Cost, Cost, Cost]:
    """Medians of a sample with rates and notifications, of one without, and of a read-back."""
    with Star().up(nodes, Static(rate_mbit=mbit), 1.0) as network, IPRoute() as ip:
        shapers = [direction.shaper for direction in network.directions]
        with network.watched(ip) as monitors:

            def proven() -> None:
                for monitor in monitors:
                    monitor.changes()
                network.counters(ip)
                links.read_rates(ip, shapers)

            turns = [(cost(proven), cost(partial(network.counters, ip))) for _ in range(ROUNDS)]
        read_back = medians(cost(network.verify) for _ in range(10))
    proved, bare = zip(*turns, strict=True)
    return medians(proved), medians(bare), read_back


def of_logs(nodes: int) -> Cost:
    """Median of a look at the logs of as many nodes."""
    with TemporaryDirectory() as folder:
        for node in range(nodes):
            (Path(folder) / f"node{node}.log").touch()
        limits = Limits(Path(folder), nodes, run_s=3600.0)
        return medians(cost(limits.look) for _ in range(ROUNDS))


def of_look(nodes: int) -> Cost:
    """Of a look at as many processes as there are ranks."""
    watch = Pauses({rank: os.getpid() for rank in range(nodes)}, time.monotonic)
    found = []
    for _ in range(ROUNDS):
        watch._next = 0.0
        found.append(cost(watch.look))
    return medians(found)


def of_judgement(folder: str, nodes: int, mbit: float, time_s: float) -> Cost:
    """To hold the collectives of `of_rank` against the plan."""
    names = [f"{way}{node}" for node in range(nodes) for way in ("up", "down")]
    events = [
        {"event": "conditions", "planned_s": 0.0, "links": {n: {"rate_mbit": mbit} for n in names}}
    ]
    times = [number * SAMPLE_S for number in range(int(time_s / SAMPLE_S))]
    rows = dict.fromkeys(names, [{"time_s": repr(at), "bytes": "0"} for at in times])
    path = Path(folder) / "collectives.csv"
    return cost(partial(delivery.judged, path, events, rows, 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mbit", type=float, default=200)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    nodes, mbit, steps = arguments.nodes, arguments.mbit, arguments.steps
    with TemporaryDirectory() as folder:
        Table(Path(folder), "collectives.csv").header()
        answers = on_ranks(nodes, mbit, of_rank, folder, steps)
        ranks = [(Cost(*proved), Cost(*bare)) for proved, bare in answers]
        proved, bare = (medians(each) for each in zip(*ranks, strict=True))
        time_s = steps * (proved.wall_s + bare.wall_s)
        judgement = of_judgement(folder, nodes, mbit, time_s)
    sample, counters, read_back = of_samples(nodes, mbit)
    logs = of_logs(nodes)
    look = of_look(nodes)
    for name, one, other in (("step of a rank", proved, bare), ("sample", sample, counters)):
        print(
            f"{name:16} with {1e3 * one.cpu_s:8.3f} ms, without {1e3 * other.cpu_s:8.3f} ms of a "
            f"processor; lasts {1e3 * one.wall_s:.2f} and {1e3 * other.wall_s:.2f} ms"
        )
    print(f"{'look at ranks':16} {1e3 * look.cpu_s:.3f} ms; at logs {1e3 * logs.cpu_s:.3f} ms")
    print(f"{'judgement':16} {judgement.cpu_s:.3f} s; read-back {read_back.cpu_s:.3f} s")
    shares = {
        "rows": (proved.cpu_s - bare.cpu_s) / bare.wall_s,
        "samples": (sample.cpu_s - counters.cpu_s) / SAMPLE_S,
        "looks": look.cpu_s / LOOK_S,
        "logs": logs.cpu_s / POLL_S,
        "judgement": judgement.cpu_s / time_s,
        "read-back": 3 * read_back.cpu_s / time_s,
    }
    print(*(f"{name} {share:.2%}" for name, share in shares.items()), sep=", ", end="; ")
    print(f"in all {sum(shares.values()):.2%} of a run of {time_s:.0f} s")


if __name__ == "__main__":
    enclosed()
    main()
