"""One run: its directory, its namespaces, following it to the end, and what the user sees of it."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from harness import environment, status
from harness.progress import Progress
from harness.records import TABLES, Table, read_events, read_json
from harness.settings import BadSetting, Settings

STOP_S = 8.0  # for the supervisor to end after Ctrl-C, before it is killed
POLL_S = 0.1
LOCK = "gradnet-run"  # abstract socket that the run now going on holds
SHELL_SIGNAL = 128  # plus the signal's number: how a shell, and unshare, tells of one


class Outcome(NamedTuple):
    """How a run ended; `skipped` when an earlier result was kept."""

    run_dir: Path
    state: str
    error: str | None
    skipped: bool


def run_dir_of(settings: Settings) -> Path:
    """results/<experiment>/<run id>; the id is a hash of what decides the result.

    A machine that is not the first of a run keeps its part elsewhere, by its network.
    """
    text = json.dumps(settings.identity(), sort_keys=True)
    run_id = hashlib.sha256(text.encode()).hexdigest()[:12]
    place = settings.build("network").place(run_id)
    return Path(settings["results"]).absolute() / settings["experiment"] / place


def perform(settings: Settings) -> Outcome:
    """Run `settings` (checked already) unless a succeeded result exists; returns how it ended.

    KeyboardInterrupt ends the run in order, records it as interrupted, and is raised again.
    """
    run_dir = run_dir_of(settings)
    if status.state(run_dir) == "succeeded" and not settings["rerun"]:
        return Outcome(run_dir, "succeeded", None, skipped=True)
    with _machine_to_ourselves():
        if status.state(run_dir) == "running":
            raise BadSetting(f"{run_dir} is being run by another process")
        _fresh(run_dir, settings)
        _supervised(run_dir, settings)
    ended = read_json(run_dir / "status.json") or {}
    return Outcome(run_dir, ended["state"], ended.get("error"), skipped=False)


def _fresh(run_dir: Path, settings: Settings) -> None:
    """An empty run directory, marked as running, with everything a reader expects to exist."""
    if run_dir.exists():
        shutil.rmtree(run_dir)
    (run_dir / "logs").mkdir(parents=True)
    status.temporary(run_dir).mkdir()
    status.begin(run_dir)
    (run_dir / "config.yaml").write_text(yaml.safe_dump(settings.config, sort_keys=False))
    for name in TABLES:
        table = Table(run_dir, name)
        table.header()
        table.close()


def _supervised(run_dir: Path, settings: Settings) -> None:
    """Start the supervisor and follow it to its end; afterwards status.json says the truth."""
    enclosed = settings.build("network").enclosure(enclosure())
    with (run_dir / "logs" / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(
            [*enclosed, sys.executable, "-m", "harness.supervise", str(run_dir)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | environment.ALLOCATOR | {"TMPDIR": str(status.temporary(run_dir))},
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
    try:
        with Progress(run_dir, settings) as progress:
            while process.poll() is None:
                progress.update()
                time.sleep(POLL_S)
    except BaseException:
        _stop(process)
        if status.state(run_dir) == "running":
            status.end(run_dir, "interrupted", "stopped by the user")
        raise
    finally:
        shutil.rmtree(status.temporary(run_dir), ignore_errors=True)
    if status.state(run_dir) == "running":
        status.end(run_dir, "failed", _unreported(process, run_dir))


def _stop(process: subprocess.Popen) -> None:
    """End the supervisor in order; the kernel ends what it does not."""
    assert process.stdin is not None
    try:
        process.stdin.write(b"s")
        process.stdin.close()
    except BrokenPipeError:
        pass  # it is ending already
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()  # unshare takes the whole pid namespace with it
        process.wait()


def _unreported(process: subprocess.Popen, run_dir: Path) -> str:
    """Why a supervisor ended without saying so itself."""
    log = (run_dir / "logs" / "supervisor.log").read_text(errors="replace").strip()
    last = log.splitlines()[-1] if log else "no output"
    if process.returncode < 0 or process.returncode > SHELL_SIGNAL:
        number = abs(process.returncode) % SHELL_SIGNAL
        return f"the supervisor was killed by {signal.Signals(number).name}"
    return f"the supervisor ended with status {process.returncode}: {last}"


def enclosure() -> list[str]:
    """Command prefix that gives a process namespaces of its own, removed with it.

    Users other than root get them through a user namespace.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    kinds = ["--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
    return ["unshare", *user, *kinds, "--mount-proc", "--"]


@contextmanager
def _machine_to_ourselves() -> Iterator[None]:
    """Hold the machine while running: two runs at once would spoil each other's timings.

    The lock is an abstract socket, so it leaves no file and goes with its process.
    """
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    told = False
    while True:
        try:
            lock.bind("\0" + LOCK)
            break
        except OSError:
            if not told:
                print("waiting: another run is going on on this machine", file=sys.stderr)
            told = True
            time.sleep(1.0)
    try:
        yield
    finally:
        lock.close()


def failure_report(outcome: Outcome) -> str:
    """What a user needs to see of a run that did not succeed: cause, traceback, where to look."""
    lines = [f"run {outcome.state}: {outcome.error}"]
    events = read_events(outcome.run_dir)
    reports = [event for event in events if event["event"] == "rank_failed"]
    causes = [event for event in reports if not event["peer"]] or reports
    if causes and outcome.state == "failed":
        first = min(causes, key=lambda event: event["monotonic"])
        lines.append(f"--- traceback of rank {first['rank']}\n{first['traceback'].rstrip()}")
    lines.append(f"logs: {outcome.run_dir / 'logs'}")
    return "\n".join(lines)
