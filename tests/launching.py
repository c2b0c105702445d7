"""Starts the product as a user does, and looks for what it may have left behind."""

import fcntl
import json
import os
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests import fork_server

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 60
STEPS_BEFORE_GATE = 3  # of a run that waits at a law's gate

# What a machine that others use as well does to a run that works.
BUSY = ("processors were idle", "late by at most", "other processes took", "virtual machine took",
        "waited for a processor", "or the machine busy?")  # fmt: skip

# A short run on real shaped packets, small enough for two cores; its links are probed for less time
# than a user's, which is three times as long for each of the two ways.
TINY = ("workers=2", "steps=6", "model=convnet", "dataset=digits", "profile=static",
        "profile.rate_mbit=200", "emulation.compute=replay", "network.probe_s=0.2")  # fmt: skip


def command(*overrides: str, results: Path) -> list[str]:
    return [sys.executable, "-m", "harness", *overrides, f"results={results}", "report=false"]


def popen(
    command: Sequence[str | Path],
    inside: int | None = None,
    at_terminal: bool = False,
    **options: Any,
) -> subprocess.Popen[str]:
    """subprocess.Popen with text; commands of ours are forked where that makes no difference.

    With `inside`, in the user and mount namespaces of that process; with `at_terminal`, standard
    input is what a shell gives.
    """
    options["text"] = True
    if fork_server.is_served(command, **options):
        return fork_server.Forked(fork_server.server(), command, inside, at_terminal, **options)
    if at_terminal:
        options["preexec_fn"] = partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0)
    return subprocess.Popen([*(nsenter(inside) if inside else []), *command], **options)


def popen_by_product(command: Sequence[str], **options: Any) -> subprocess.Popen:
    """In place of subprocess.Popen where the product, within tests, starts what forks for it."""
    if fork_server.is_served(command, **options):
        return fork_server.Forked(fork_server.server(), command, **options)
    return subprocess.Popen(command, **options)


def nsenter(holder: int) -> list[str]:
    """What a command begins with, to be done in the namespaces of the process `holder`."""
    ours, theirs = (os.readlink(f"/proc/{each}/ns/user") for each in ("self", holder))
    user = ["--user", "--preserve-credentials"] if ours != theirs else []
    folder = ["sh", "-c", 'cd "$0" && exec "$@"', str(ROOT)]  # which is another there
    return ["nsenter", "--target", str(holder), "--mount", *user, *folder]


def completed(
    command: Sequence[str | Path], timeout: float = DEADLINE_S, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `command` in the project's folder to its end, as `popen` does."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return _ended(popen(command, **{"cwd": ROOT} | pipes | options), timeout)


def forked(
    command: Sequence[str | Path], timeout: float = DEADLINE_S, has: str = "networks"
) -> subprocess.CompletedProcess[str]:
    """Run tests' own code to its end, in a fork, of one thread, of what has imported so much."""
    options = {"cwd": ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "text": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return _ended(fork_server.Forked(fork_server.server(has), command, **options, **pipes), timeout)


def afresh(
    command: Sequence[str | Path], timeout: float = 900, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end by code that nobody has imported yet, wherever it lies.

    It is forked where that makes no difference, with the packages of others imported.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = {"cwd": ROOT} | pipes | options
    if fork_server.is_python(command, **started):
        process = fork_server.Forked(fork_server.server("libraries"), command, text=True, **started)
    else:
        process = subprocess.Popen(command, text=True, **started)
    return _ended(process, timeout)


def _ended(process: subprocess.Popen[str], timeout: float) -> subprocess.CompletedProcess[str]:
    with process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def harness(*overrides: str, results: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m harness` to its end."""
    return completed(command(*overrides, results=results), **options)


def start(*overrides: str, results: Path, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start `python -m harness`, by `before`, in a process group of its own, as a terminal does."""
    return popen([*before, *command(*overrides, results=results)], cwd=ROOT, stdout=subprocess.PIPE,
                 stderr=subprocess.STDOUT, process_group=0)  # fmt: skip


def runs(results: Path) -> list[Path]:
    return sorted(path.parent for path in results.glob("*/*/status.json"))


def state(run: Path) -> str:
    return json.loads((run / "status.json").read_text())["state"]


def own_reasons(run: Path) -> list[str]:
    """Why a run that ended is invalid, but for what others had of this machine's processors."""
    reasons = json.loads((run / "summary.json").read_text())["reasons"]
    return [each for each in reasons if not any(mark in each for mark in BUSY)]


def worked(done: subprocess.CompletedProcess[str], run: Path) -> bool:
    """The command made a `run`: one that is good, or that only others on this machine spoiled."""
    return done.returncode == 0 or state(run) == "invalid" and own_reasons(run) == []


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> object:
    """Poll until `condition` answers something true, and return that."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {deadline_s} s")


def training(results: Path, steps: int = 2) -> Path | None:
    """The run that has done `steps` steps already, if there is one."""
    return run_with(results, "steps.csv", 2 * steps)


def run_with(results: Path, table: str, rows: int) -> Path | None:
    """The run whose `table` has so many rows already, if there is one."""
    files = [run / table for run in runs(results) if (run / table).exists()]
    return next((f.parent for f in files if len(f.read_text().splitlines()) > rows), None)


def processes(pattern: str) -> list[int]:
    """Ids of the processes whose command line contains `pattern`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if pattern in line:
                found.append(int(entry.name))
    return found


def network_namespaces() -> set[str]:
    """Every network namespace some process of this machine lives in."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.add(os.readlink(entry / "ns" / "net"))
            except OSError:
                continue
    return found
