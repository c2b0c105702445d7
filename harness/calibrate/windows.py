"""Fit TCP's window sizes to measured transfers over links with long round trips.

`python -m harness.calibrate.windows REPEATS` prints measurements as JSON. It must be process 1 of
its own namespaces, in which `measured` starts it. The kernel must have netem.
"""

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from harness.calibrate.links import LIMIT_S, CalibrationError
from harness.calibrate.ranks import on_ranks_of
from harness.calibrate.testbed import fitted
from harness.config.backends import BETWEEN_CPUS
from harness.emulation import user_namespace
from harness.emulation.star import Star
from harness.fidelity.bench import CROSSINGS, Bench
from harness.fidelity.collectives import RowPredictor
from harness.fidelity.measurement import Measurement, Selector
from harness.locks import machine_to_ourselves
from profiles.static import Static

RTTS_MS = (40.0, 160.0)
SIZES_BYTES = (1 << 16, 1 << 19, 1 << 22, 1 << 24)
RATE_MBIT = 400.0  # more than a window of 4 MiB reaches over the longer round trip
PAUSE_S = 4.0  # Linux halves an idle window every time-out, nine times to the first of 8 MB
NAME = "here"


class TcpWindows(NamedTuple):
    """Fitted windows of one connection, and the errors of the transfer times they predict."""

    window_bytes: int
    initial_window_bytes: int
    median: float  # absolute value of the relative error
    worst: float


def measured(repeats: int = 3) -> list[Measurement]:
    """Measure transfers between two nodes while no run is going; raise CalibrationError."""
    command = user_namespace.command(sys.executable, "-m", __name__, str(repeats))
    with machine_to_ourselves("measuring windows"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CalibrationError(f"long ways could not be measured: {said[-1]}")
    return [row(*told) for told in json.loads(done.stdout)]


def row(rtt_ms: float, nbytes: int, seconds: float) -> Measurement:
    """Return one transfer as a benchmark row, which a testbed can predict."""
    said = f"{RATE_MBIT:g} Mbit/s, round trip {rtt_ms:g} ms"
    return Measurement(
        NAME, NAME, "", "", said, "2", BETWEEN_CPUS.name, "time_ms", 1000 * seconds, "ms", NAME,
        stack=BETWEEN_CPUS.name, operation="send", rtt_ms=rtt_ms, rate_mbit=RATE_MBIT,
        bytes=nbytes, statistic="median",
    )  # fmt: skip


def fit(rows: Sequence[Measurement]) -> TcpWindows:
    """Return the two windows with which virtual time fits `rows` best (least squares of logs)."""
    inputs = tuple(Selector({"rtt_ms": row.rtt_ms, "bytes": row.bytes}) for row in rows)
    constants, takes = ("window_bytes", "initial_window_bytes"), (Selector({"id": NAME}),)
    bench = Bench(NAME, NAME, inputs=inputs, takes=takes, backend=BETWEEN_CPUS.name, fit=constants)
    found = fitted(bench, rows)
    predictor = RowPredictor(found)
    errors = [abs(predictor.predict(row) / (row.value or math.nan) - 1) for row in rows]
    full, initial = (round(found[name]) for name in constants)
    return TcpWindows(full, initial, float(np.median(errors)), max(errors))


def take(
    repeats: int, rtts_ms: Sequence[float] = RTTS_MS, sizes_bytes: Sequence[int] = SIZES_BYTES
) -> list[tuple[float, int, float]]:
    """Time transfers between two nodes in namespaces of this machine.

    Return (round trip in ms, bytes, median seconds) for each round trip and size. The median is
    over `repeats` transfers.
    """
    found = []
    for rtt_ms in rtts_ms:
        profile = Static(RATE_MBIT, delay_ms=rtt_ms / CROSSINGS)
        sent, received = on_ranks_of(Star(), 2, profile, _times, repeats, sizes_bytes)
        for nbytes, begun, done in zip(sizes_bytes, sent, received, strict=True):
            took_s = [end - start for start, end in zip(begun, done, strict=True)]
            found.append((rtt_ms, nbytes, statistics.median(took_s)))
    return found


def _times(repeats: int, sizes_bytes: Sequence[int]) -> list[list[float]]:
    """Return the times of `_time` for each size and repetition, without a first warm-up."""
    return [[_time(nbytes) for _ in range(repeats + 1)][1:] for nbytes in sizes_bytes]


def _time(nbytes: int) -> float:
    """Return when rank 0 began to send, or rank 1 had received; the clock is that of all ranks."""
    tensor = torch.ones(nbytes // 4)
    dist.barrier()
    if dist.get_rank() == 1:
        dist.recv(tensor, src=0)
        return time.monotonic()
    time.sleep(PAUSE_S)
    begun_s = time.monotonic()
    dist.send(tensor, dst=1)
    return begun_s


if __name__ == "__main__":
    print(json.dumps(take(int(sys.argv[1]))))
