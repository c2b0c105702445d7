"""The torchrun agents of a run, as their parent sees them: how they ended, and which first."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.config.backends import BETWEEN_CPUS
from harness.records.run_directory import read_events
from harness.runner.validity_checks import of_changes

MOST_WORDS = 300  # characters of a log's last line
ABORTED = (
    f", as {BETWEEN_CPUS.name} does where another rank calls a collective of another size; with "
    "network=simulated "
    "the compressor's sizes are compared"
)
OWN_CHILDREN = 0x20000000  # __WNOTHREAD: not the iperf3 processes that another thread started


@dataclass
class Agents:
    """The torchrun agents of a run, by process id."""

    run_dir: Path
    workers: int  # ranks of this machine
    look_elsewhere: Callable[[], None]  # raises when the run has ended on another machine
    running: dict[int, int] = field(default_factory=dict)  # pid -> node
    endings: dict[int, int] = field(default_factory=dict)  # node -> exit code, negative: signal
    oom_kills_before: int = field(default_factory=lambda: oom_kills())  # of this machine

    def reap(self) -> None:
        """Collect every child that ended, including orphans of killed agents."""
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG | OWN_CHILDREN)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.running:
                self.ended(self.running.pop(pid), os.waitstatus_to_exitcode(wait_status))

    def ended(self, node: int, code: int) -> None:
        """Record that the process of `node` has ended with exit code `code`."""
        self.endings[node] = code

    def named(self, node: int) -> str:
        return f"torchrun agent of node {node}"

    def all_ranks_finished(self) -> bool:
        """Return True once every rank of this machine has written all its results."""
        events = read_events(self.run_dir)
        return sum(event["event"] == "rank_finished" for event in events) == self.workers


def is_ours(agents: Agents) -> bool:
    """Return True if something failed here that is no consequence of a failure elsewhere."""
    events = read_events(agents.run_dir)
    reports = {e["rank"]: e["peer"] for e in events if e["event"] == "rank_failed"}
    lost = {event["rank"] for event in events if event["event"] == "worker_lost"}
    killed = any(code < 0 for code in agents.endings.values())
    return killed or not all(reports.values()) or bool(lost - set(reports))


def cause(agents: Agents) -> str:
    """Return the first failure that is not a consequence of another."""
    events = read_events(agents.run_dir)
    reports = [event for event in events if event["event"] == "rank_failed"]
    for node, code in agents.endings.items():
        if code < 0:
            return f"the {agents.named(node)} was killed by {_signal(code)}{_memory(agents, code)}"
    for report in sorted(reports, key=lambda report: report["monotonic"]):
        if not report["peer"]:
            return f"rank {report['rank']}: {report['error']}"
    reported = {report["rank"] for report in reports}
    for event in events:
        if event["event"] == "worker_lost" and event["rank"] not in reported:
            rank, code = event["rank"], event["exitcode"]
            how = f"was killed by {_signal(code)}" if code < 0 else f"exited with status {code}"
            last = _memory(agents, code) or _last_words(agents.run_dir / "logs" / f"rank{rank}.log")
            unlike = code == -signal.SIGABRT and (not last or BETWEEN_CPUS.size_mismatch in last)
            return f"rank {rank} {how}{ABORTED if unlike else last}"
    failures = [event for event in events if event["event"] == "agent_failed"]
    for event in sorted(failures, key=lambda event: not event.get("own")):
        if event.get("own") or not reports:
            return f"the {agents.named(event['node'])} failed: {event['error']}"
    first = "".join(f"{each}; " for each in of_changes(events)) + _silent(events)
    # of ranks that wait for each other, one that waits for a rank that is silent
    for report in sorted(reports, key=lambda report: report.get("waits_for") in {None, *reported}):
        return f"{first}rank {report['rank']}: {report['error']}"
    return "; ".join(f"node {node}: agent exited with {c}" for node, c in agents.endings.items())


def oom_kills() -> int:
    """Return how many processes this machine has killed for want of memory. 0 without a counter."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _memory(agents: Agents, code: int) -> str:
    """Say that memory ran out, if the kernel killed a process for that since the run began."""
    count = oom_kills() - agents.oom_kills_before if code == -signal.SIGKILL else 0
    return ": out of memory, by the kernel's count of such kills" if count > 0 else ""


def _last_words(log: Path) -> str:
    """Return `: ` and the last line of a log, before a dump of stacks. Empty without one."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    lines = text.partition("Fatal Python error")[0].strip().splitlines()
    return f": {lines[-1].strip()[:MOST_WORDS]}" if lines else ""


def _silent(events: list[dict[str, Any]]) -> str:
    """Return ranks that were ready and have not reported an end or an error."""
    ready = {event["rank"]: event["pid"] for event in events if "pid" in event}
    ends = ("rank_failed", "rank_finished", "worker_lost")
    told = {event["rank"] for event in events if event["event"] in ends}
    if not told & set(ready):
        return ""
    named = [f"rank {rank} {_stands(ready[rank])}" for rank in sorted(set(ready) - told)]
    return "; ".join([*named, ""])


def _stands(pid: int) -> str:
    """Describe the state of process `pid`, as far as the kernel reports it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "has gone without a word"
    return {"T": "is stopped (SIGSTOP)", "D": "waits for a disk"}.get(state, "does not answer")


def _signal(code: int) -> str:
    return signal.Signals(-code).name
