"""Findings on the machine: cores, memory, disk, limits, other users, and system programs."""

import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import locks
from harness.config.run import Run
from harness.doctor.composition import Composition
from harness.doctor.findings import Finding, needed
from harness.emulation import ledger
from harness.emulation.ledger import SUFFIX

GIB = 1 << 30
# Measured on CPU, proportional set sizes: runner and supervisor 0.6 to 0.7 GiB; a worker of the
# quickstart with its agent 0.30 GiB, of VGG16 (61 MB of weights) 0.52 GiB.
BASE_BYTES, WORKER_BYTES = 0.7 * GIB, 0.3 * GIB
COPIES = 7  # float32: weights, gradients, buckets, momentum, residual, compensated, received
LEAST_DISK_BYTES, LEAST_SHARED_BYTES = GIB, GIB // 4
BASE_FILES, FILES_PER_WORKER = 128, 8
IPERF3_LEAST = (3, 9)
TRY_S = 10.0  # for a program to say its version
MEMORY = Path("/proc/meminfo")


def cores(asked: Sequence[Composition]) -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0))
    workers = max((run.workers for run, _ in asked), default=0)
    found = f"{count} cores for {workers} workers" if workers else f"{count} cores"
    measured = [each for each in asked if each.run.emulation.is_measured]
    if any(each.run.workers > count and not each.on_gpus for each in measured):
        means = "with emulation.compute=measured, workers are slowed by each other"
        yield Finding("cores", "warn", found, means, "emulation.compute=paced, or fewer workers")
    else:
        yield Finding("cores", "ok", found)


def memory(asked: Sequence[Composition], meminfo: Path = MEMORY) -> Iterator[Finding]:
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    needs = max((_needed_bytes(run) for run, _ in asked), default=BASE_BYTES)
    found = f"{free / GIB:.1f} GiB available"
    means = f"runs need about {needs / GIB:.1f} GiB, batches and activations not counted"
    if needs > free:
        enable = "fewer workers, a smaller model, or scale=laptop"
        yield Finding("memory", "warn", found, means, enable)
    else:
        yield Finding("memory", "ok", found, means)


def _needed_bytes(run: Run) -> float:
    parameters = sum(parameter.numel() for parameter in run.shapes().parameters())
    each = WORKER_BYTES + (2 if run.emulation.is_replay else COPIES) * 4 * parameters
    return BASE_BYTES + run.workers * each


def disk(asked: Sequence[Composition]) -> Iterator[Finding]:
    for folder in sorted({each.results for each in asked} or {"results"}):
        path = Path(folder).absolute()
        while not path.exists():
            path = path.parent
        free = shutil.disk_usage(path).free
        found = f"{free / GIB:.1f} GiB free in {folder}"
        if not os.access(path, os.W_OK | os.X_OK):
            enable = "results=FOLDER that you may write to"
            yield Finding("disk", "missing", f"{path} is not writable", "results go there", enable)
        elif free < LEAST_DISK_BYTES:
            yield Finding("disk", "warn", found, "a long sweep needs more", "results=ELSEWHERE")
        else:
            yield Finding("disk", "ok", found)


def shared_memory() -> Iterator[Finding]:
    size = shutil.disk_usage("/dev/shm").total
    found = f"/dev/shm of {size / GIB:.1f} GiB"
    if size < LEAST_SHARED_BYTES:
        means = "data sets read by processes (imagenet) pass their batches through it"
        enable = "sudo mount -o remount,size=2g /dev/shm; docker run --shm-size=2g"
        yield Finding("shared", "warn", found, means, enable)
    else:
        yield Finding("shared", "ok", found)


def open_files(asked: Sequence[Composition]) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = max((run.workers for run, _ in asked), default=0)
    needs = BASE_FILES + FILES_PER_WORKER * workers
    if soft != resource.RLIM_INFINITY and soft < needs:
        means = f"{workers} workers need about {needs}"
        yield Finding("files", "warn", f"{soft} open files a process", means, f"ulimit -n {needs}")
    else:
        yield Finding("files", "ok", f"{soft} open files a process")


def others(lock: Path | None = None, ledgers: Path = Path(ledger.FOLDER)) -> Iterator[Finding]:
    """Check for an active run, and for remains of dead ones."""
    held = locks.holder(lock or locks.machine_lock())
    if held is not None:
        means = "the next run waits for its end; both would spoil each other's timings"
        yield Finding("runs", "warn", f"one is going on on this machine: {held}", means)
    else:
        yield Finding("runs", "ok", "none is going on")
    left = sorted(ledgers.glob(f"*{SUFFIX}"))
    if left:
        found = f"{len(left)} in {ledgers}"
        means = "a run changed an interface of this machine, and goes on or died"
        enable = "`python -m harness.doctor --clean` puts back what dead runs changed"
        yield Finding("ledgers", "warn", found, means, enable)


def programs(asked: Sequence[Composition]) -> Iterator[Finding]:
    """Yield a finding on iperf3, which makes competing flows: present, and new enough."""
    flows = max((run.profile.extremes().flows for run, _ in asked), default=0)
    purpose = f"the profile's {flows} competing flows" if flows else "competing flows"
    wanted, enable = needed(flows > 0), "sudo apt-get install iperf3"
    if (path := shutil.which("iperf3")) is None:
        yield Finding("iperf3", wanted, "not found in PATH", purpose, enable)
        return
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=TRY_S)
    if (number := re.search(r"(\d+)\.(\d+)", said.stdout)) is None:
        yield Finding("iperf3", "warn", "could not tell its version", purpose)
    elif (int(number[1]), int(number[2])) < IPERF3_LEAST:
        older = f"{number[0]}, older than {'.'.join(map(str, IPERF3_LEAST))}"
        yield Finding("iperf3", wanted, older, purpose, enable)
    else:
        yield Finding("iperf3", "ok", number[0], purpose)
