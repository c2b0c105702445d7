"""Gloo over packets on long and lossy links, as rows that `study fidelity --cells` reads.

    python benchmarks/long_links.py --out rows.csv [--only delays published losses blind]
    tests/netem-vm --timeout 3000 -- .venv/bin/python benchmarks/long_links.py ...   without netem

`published` are collectives as tc_cluster_setting has them on AWS, of fewer bytes, every second
taken for DILATION: rates are divided by it and delays multiplied, so bytes under way are the same.
`delays` and `losses` are all-reduces in real time. A row is written as soon as it is there, a row
that is there is not measured again. One without delay and loss comes first: what it is over the
ring bound is what this machine costs, so the load is told.
"""

import argparse
import csv
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from harness.calibrate.ranks import enclosed, on_ranks_of
from harness.emulation.star import Star
from harness.fidelity.measurement import ROW_COLUMNS
from profiles.static import Static

CROSSINGS = 4  # of links, in a round trip over a star
LOSSY = 2  # of them, one way
DILATION = 100.0
QUEUE_MS = 50.0
PAUSE_S = 0.3  # before each, as a computation
# round trips of a pause after which windows begin anew: Linux halves an idle one every time-out,
# of a round trip and 0.2 s at least, and 2 MiB are 2^7 times its first
ANEW_RTTS = 10
STACK = "namespaces of one machine, gloo over TCP, cubic, HTB and netem"
MIB = 1 << 20
RATE_MBIT = 5  # what a virtual machine of one processor carries on a machine at work
DELAYS_MS = (0, 1, 5, 10, 50, 100)  # round trips
LOSSES = (0.001, 0.01, 0.02)  # one way
BLIND = ((0.005, 30, 4), (0.005, 200, 4), (0.03, 30, 4), (0.01, 80, 2))  # with ms, workers
PUBLISHED = ((10, 1000), (5, 2000))  # delay of an egress, ms; rate, Mbit/s


class Case(NamedTuple):
    """One collective on one network; `rtt_ms` and `rate_mbit` emulated."""

    id: str
    operation: str
    workers: int
    rtt_ms: float
    rate_mbit: float
    nbytes: int
    loss: float = 0.0  # one way
    dilation: float = 1.0

    @property
    def network(self) -> str:
        lost = f", loss {100 * self.loss:g} %" if self.loss else ""
        return f"{self.rate_mbit:g} Mbit/s, round trip {self.rtt_ms:g} ms{lost}"


def cases(only: list[str]) -> Iterator[Case]:
    if "delays" in only:
        for rtt_ms in DELAYS_MS:
            for nbytes in (64 * 1024, MIB):
                yield Case("here_delays", "all_reduce", 4, rtt_ms, RATE_MBIT, nbytes)
    if "published" in only:
        for operation in ("all_reduce", "reduce", "broadcast"):
            yield Case("here_gloo", operation, 4, 0, 1000, 16 * MIB, dilation=DILATION)
            for delay_ms, rate_mbit in PUBLISHED:
                rtt_ms, nbytes = 2 * delay_ms, 16 * MIB
                yield Case("here_gloo", operation, 4, rtt_ms, rate_mbit, nbytes, dilation=DILATION)
    if "blind" in only:  # what the model of losses had not seen
        for loss, rtt_ms, workers in BLIND:
            yield Case("here_blind", "all_reduce", workers, rtt_ms, RATE_MBIT, MIB, loss)
    if "losses" in only:
        for loss in LOSSES:
            for rtt_ms in (0, 10, 50, 100):
                yield Case("here_losses", "all_reduce", 4, rtt_ms, RATE_MBIT, MIB, loss)


def times_s(case: Case, repeats: int) -> list[float]:
    """Emulated seconds of each repetition, from the last start to the last end."""
    star = Star(queue_ms=None, queue_bytes=max(1 << 18, round(case.rate_mbit * 125 * QUEUE_MS)))
    profile = Static(
        rate_mbit=case.rate_mbit / case.dilation,
        delay_ms=case.rtt_ms * case.dilation / CROSSINGS,
        loss=1 - (1 - case.loss) ** (1 / LOSSY),
    )
    pause_s = max(PAUSE_S, ANEW_RTTS * case.rtt_ms * case.dilation / 1000)
    told = (case.operation, case.nbytes, pause_s, repeats)
    by_rank = on_ranks_of(star, case.workers, profile, _spans, *told)
    return [
        (max(end for _, end in spans) - max(start for start, _ in spans)) / case.dilation
        for spans in zip(*by_rank, strict=True)
    ]


def _spans(operation: str, nbytes: int, pause_s: float, repeats: int) -> list[tuple[float, float]]:
    return [_span(operation, torch.ones(nbytes // 4), pause_s) for _ in range(repeats + 1)][1:]


def _span(operation: str, tensor: torch.Tensor, pause_s: float) -> tuple[float, float]:
    latest = torch.tensor(time.monotonic(), dtype=torch.float64)  # one clock: they are processes
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    wait_s = 2 * (time.monotonic() - latest.item()) + pause_s  # what came last is there as well
    time.sleep(max(0.0, latest.item() + wait_s - time.monotonic()))
    begun_s = time.monotonic()
    if operation == "all_reduce":
        dist.all_reduce(tensor)
    elif operation == "broadcast":
        dist.broadcast(tensor, src=0)
    else:
        dist.reduce(tensor, dst=0)
    return begun_s, time.monotonic()


def row(case: Case, found_s: list[float]) -> dict[str, object]:
    low, high = 1000 * min(found_s), 1000 * max(found_s)
    spread = f"median of {len(found_s)}, {low:.4g} to {high:.4g}, load {os.getloadavg()[0]:.0f}"
    in_vm = " in a virtual machine" if os.environ.get("NETEM_VM") else ""
    origin = f"python benchmarks/long_links.py{in_vm}, dilation {case.dilation:g}"
    told = {
        "source": "here",
        "id": case.id,
        "stack": STACK,
        "operation": case.operation,
        "workers": case.workers,
        "network": case.network,
        "rtt_ms": case.rtt_ms,
        "rate_mbit": case.rate_mbit,
        "bytes": case.nbytes,
        "method": "gloo",
        "metric": "time_ms",
        "value": f"{1000 * statistics.median(found_s):.5g}",
        "unit": "ms",
        "statistic": spread,
        "origin": origin,
    }
    return {column: told[column] for column in ROW_COLUMNS}


def _known(path: Path) -> set[tuple[str, ...]]:
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {_key(each) for each in csv.DictReader(file)}


def _key(told: dict) -> tuple[str, ...]:
    return tuple(str(told[name]) for name in ("id", "operation", "workers", "network", "bytes"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parts = ("delays", "published", "losses", "blind")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    enclosed()
    known = _known(asked.out)
    with asked.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, ROW_COLUMNS, lineterminator="\n")
        if not known:
            writer.writeheader()
        for case in cases(asked.only):
            if _key(row(case, [0.0])) in known:
                continue
            found = row(case, times_s(case, asked.repeats))
            writer.writerow(found)
            file.flush()
            print(case.id, case.operation, case.network, case.nbytes, found["value"],
                  found["statistic"], flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
