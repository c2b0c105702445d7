"""What a fault must leave: nothing of its run, the truth on disk, earlier runs as they were."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness.records import manifest
from tests import fork_server
from tests.launching import (
    ROOT,
    STEPS_BEFORE_GATE,
    TINY,
    command,
    harness,
    popen,
    processes,
    runs,
    until,
)

PLAIN = tuple(part for part in TINY if part.startswith("profile"))
GATED = ("compressor._target_=tests.faults.WaitsAtGate", *(set(TINY) - set(PLAIN)))
SOON_S = 30.0  # the end of a run that was hit; no timeout of a collective is that short
SETTLED = ("succeeded", "invalid")  # a busy machine may spoil a run that works
ENCLOSURE, FORKS = "harness: enclosure of", "harness: forks supervisors"  # process titles
KINDS = ("net", "mnt", "pid", "user")


class Traces(NamedTuple):
    """What there is of a run that goes on."""

    processes: dict[int, int]  # when each began
    namespaces: set[str]
    interfaces: set[str]  # of ours, which the run must not add to
    shared_memory: set[str]


def traces(runner: int) -> Traces:
    """Of the process `runner` and all that come from it."""
    parents = {pid: parent for pid, (parent, _) in _alive().items()}
    ours = {runner}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    began = {pid: at for pid, (_, at) in _alive().items() if pid in ours}
    namespaces = _namespaces(ours) - _namespaces(set(parents) - ours)
    return Traces(began, namespaces, *_shared())


def traces_of_run(runner: int, hit: int = 0) -> Traces:
    """Without the processes that go on with the next run of a sweep, unless `hit` is one."""
    seen = traces(runner)
    goes_on = {runner, *processes(FORKS), *processes(fork_server.SPARE)}
    for each in goes_on & set(seen.processes) - {hit}:
        del seen.processes[each]
    return seen


def _alive() -> dict[int, tuple[int, int]]:
    """Parent and beginning of every process that has not ended."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[0] not in "ZX":
            found[int(entry.name)] = (int(fields[1]), int(fields[19]))
    return found


def _namespaces(processes: set[int]) -> set[str]:
    found = set()
    for pid in processes:
        for kind in KINDS:
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                continue
    return found


def _shared() -> tuple[set[str], set[str]]:
    return {name for _, name in socket.if_nameindex()}, set(os.listdir("/dev/shm"))


def remains(seen: Traces) -> list[str]:
    """What is left of a run that has ended."""
    alive = _alive()
    interfaces, shared_memory = _shared()
    left = [
        f"process {pid}" for pid, at in seen.processes.items() if alive.get(pid, (0,))[-1] == at
    ]
    held = _namespaces(set(alive) - _of_later_runs(seen, alive))
    left += [f"namespace {name}" for name in held & seen.namespaces]
    left += [f"interface {name}" for name in interfaces - seen.interfaces]
    return left + [f"/dev/shm/{name}" for name in shared_memory - seen.shared_memory]


def _of_later_runs(seen: Traces, alive: dict[int, tuple[int, int]]) -> set[int]:
    """Processes of runs that began since: the kernel gives their namespaces numbers again."""
    began = {pid for pid in processes(ENCLOSURE) if pid in alive}
    later = {pid for pid in began if seen.processes.get(pid) != alive[pid][-1]}
    while more := {pid for pid, (parent, _) in alive.items() if parent in later} - later:
        later |= more
    return later


class Scene:
    """A sweep with one finished run (seed 0), and a gate that holds the others at a step."""

    def __init__(self, folder: Path, finished: Path | None) -> None:
        self.results, self.temporary = folder / "results", folder / "temporary"
        self.gate = folder / "gate"
        self.temporary.mkdir(parents=True)
        self.gate.touch()
        self.kept: dict[str, bytes] = {}
        self._started: list[subprocess.Popen[str]] = []
        if finished:
            self.keep(finished, self.results)

    def keep(self, finished: Path, results: Path) -> None:
        """Put the finished run among `results`; `intact` tells whether it stays as it is."""
        self.finished = results / finished.parent.name / finished.name
        shutil.copytree(finished, self.finished)
        self.kept = contents(self.finished)

    def start(
        self,
        *overrides: str,
        before: Sequence[str] = (),
        inside: int | None = None,
        terminal: int | None = None,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """The sweep, as a user starts it: in a shell, by `before`, or at a `terminal`.

        With `inside`, in the user and mount namespaces of that process.
        """
        own = {"TMPDIR": str(self.temporary), "GATE": str(self.gate)}
        process = popen([*before, *command("-m", *GATED, *overrides, results=self.results)],
                        cwd=ROOT, env=os.environ | own | environment, stdin=terminal,
                        stdout=terminal or subprocess.PIPE, stderr=terminal or subprocess.STDOUT,
                        start_new_session=True, inside=inside,
                        at_terminal=terminal is not None)  # fmt: skip
        self._started.append(process)
        return process

    def under_way(self, results: Path | None = None, deadline_s: float = 120) -> Path:
        """The run that waits at the gate, once there is one."""
        at_gate = partial(_at_gate, results or self.results)
        found = until(at_gate, "a run at the gate", deadline_s)
        assert isinstance(found, Path)
        return found

    def open(self) -> None:
        self.gate.unlink(missing_ok=True)

    def settled(self, run: Path) -> dict:
        """What status.json says, once it no longer says that the run goes on."""
        until(lambda: status(run).get("state") != "running", "the truth in status.json", SOON_S)
        return status(run)

    def check(self, seen: Traces) -> None:
        """Nothing is left of what was `seen`, and the finished run is as it was."""
        end = time.monotonic() + SOON_S
        while (left := remains(seen)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not left and not self.left_behind(), left
        self.intact()

    def left_behind(self) -> list[str]:
        """Temporary files, without the empty folder that importing torch makes for its cache."""
        found = os.listdir(self.temporary)
        return [each for each in found if not each.startswith("torchinductor_")]

    def intact(self) -> None:
        assert contents(self.finished) == self.kept

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *failure: object) -> None:
        self.open()
        self._kill()

    def end(self) -> None:
        """Leave the next law nothing of one that failed: no process, no run that goes on."""
        if self._kill():
            for run in [run for run in runs(self.results) if status(run)["state"] == "running"]:
                until(lambda run=run: not processes(str(run)), f"the end of {run}", SOON_S)
                shutil.rmtree(run)

    def _kill(self) -> bool:
        """What goes on, if anything does; the supervisors end by their runners' end."""
        going_on = [process for process in self._started if process.poll() is None]
        for process in going_on:
            process.kill()
            process.wait()
        return bool(going_on)


def _at_gate(results: Path) -> Path | None:
    for run in runs(results):
        rows = run / "steps.csv"
        if status(run).get("state") == "running" and rows.exists():
            if len(rows.read_text().splitlines()) > 2 * STEPS_BEFORE_GATE:
                return run
    return None


def status(run: Path) -> dict:
    try:
        return json.loads((run / "status.json").read_text())
    except FileNotFoundError:
        return {}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, byte for byte."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def finished_run(results: Path, *overrides: str) -> Path:
    """Seed 0, ended well."""
    done = harness("-m", *GATED, *overrides, "seed=0", results=results)
    [run] = runs(results)
    assert status(run)["state"] in SETTLED, done.stdout + done.stderr
    declare_good(run)
    return run


def declare_good(run: Path) -> None:
    """Where a busy machine has spoiled a run that ended: a law is about something else."""
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"valid": True}))
    good = {"state": "succeeded", "files": manifest.of(run)}
    (run / "status.json").write_text(json.dumps(status(run) | good))
