"""What ended a run, of what its processes told: who is missing, and the agent's own words."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.records.run_directory import Events
from harness.runner.agents import Agents, cause
from tests.launching import until

LOST = "RuntimeError: [pair.cc:534] Timed out waiting 8000ms for recv operation to complete"


def agents(run_dir: Path, **endings: int) -> Agents:
    found = Agents(run_dir, 3, lambda: None)
    found.endings = {int(node[1:]): code for node, code in endings.items()}
    return found


def ready(events: Events, **pids: int) -> None:
    for rank, pid in pids.items():
        events.append("rank_ready", rank=int(rank[1:]), pid=pid)


def waited(events: Events, rank: int) -> None:
    told = {"error": LOST, "peer": True, "waits_for": None, "traceback": ""}
    events.append("rank_failed", rank=rank, monotonic=time.monotonic(), **told)


@pytest.fixture
def process() -> Iterator[int]:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield other.pid
    other.kill()
    other.communicate()


def test_a_rank_that_is_stopped_is_named_and_not_the_one_that_noticed(tmp_path, process):
    events = Events(tmp_path)
    ready(events, r0=os.getpid(), r1=process, r2=os.getpid())
    waited(events, 0)
    waited(events, 2)
    assert cause(agents(tmp_path, n0=1)) == f"rank 1 does not answer; rank 0: {LOST}"
    os.kill(process, signal.SIGSTOP)
    until(lambda: "T" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2], "stopped")
    assert cause(agents(tmp_path, n0=1)) == f"rank 1 is stopped (SIGSTOP); rank 0: {LOST}"


def test_who_took_a_link_down_is_told_before_those_who_wait_for_it(tmp_path: Path) -> None:
    events = Events(tmp_path)
    ready(events, r0=1, r1=2)
    events.append("changed_outside", 1.5, link="down1", what="its interface was down")
    for rank in (0, 1):
        waited(events, rank)
    changed = "link down1 was changed from outside at 1.50 s: its interface was down"
    assert cause(agents(tmp_path, n0=1)) == f"{changed}; rank 0: {LOST}"


def test_ranks_that_all_say_something_are_told_as_they_said_it(tmp_path: Path) -> None:
    events = Events(tmp_path)
    ready(events, r0=1, r1=2)
    for rank in (0, 1):
        waited(events, rank)
    assert cause(agents(tmp_path, n0=1)) == f"rank 0: {LOST}"


OUT_OF_FILES = "  what():  listener.cc:68 accept: Too many open files"


@pytest.mark.parametrize(
    ("code", "log", "said"),
    [
        (1, "Traceback\nOSError: [Errno 24] Too many open files\n", "OSError: [Errno 24] Too many"),
        (-6, f"{OUT_OF_FILES}\nFatal Python error: Aborted\n\nThread 0x7f\n", "what():  listener"),
        (-11, "", "rank 0 was killed by SIGSEGV"),
    ],
)  # fmt: skip
def test_a_rank_that_could_not_report_is_told_by_the_last_words_of_its_log(
    code: int, log: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank0.log").write_text(log)
    events = Events(tmp_path)
    waited(events, 1)
    events.append("worker_lost", rank=0, exitcode=code)
    error = cause(agents(tmp_path, n0=1))
    assert error.startswith("rank 0 ") and said in error and "Thread" not in error


def test_a_kill_for_want_of_memory_is_told_as_one(tmp_path: Path) -> None:
    Events(tmp_path).append("worker_lost", rank=1, exitcode=-9)
    killed = agents(tmp_path, n0=1)
    assert cause(killed) == "rank 1 was killed by SIGKILL"
    killed.oom_kills_before -= 1
    assert cause(killed).startswith("rank 1 was killed by SIGKILL: out of memory")


def test_an_agent_that_lacks_something_is_told_before_the_ranks_that_lost_its_own(tmp_path):
    events = Events(tmp_path)
    waited(events, 1)
    events.append("agent_failed", node=0, error=repr(OSError(24, "Too many open files")), own=True)
    assert "Too many open files" in cause(agents(tmp_path, n0=1))


@pytest.mark.parametrize(
    ("code", "how"),
    [(-6, "was killed by SIGABRT, as gloo does where another rank"), (-9, "was killed by SIGKILL")],
)
def test_a_rank_that_was_killed_is_told_with_what_may_have_killed_it(code, how, tmp_path):
    Events(tmp_path).append("worker_lost", rank=1, exitcode=code)
    assert cause(agents(tmp_path, n1=1)).startswith(f"rank 1 {how}")


def test_where_nobody_came_as_far_the_agent_s_own_cause_is_told(tmp_path: Path) -> None:
    error = OSError(28, "No space left on device", "/dev/shm/torch_1")
    Events(tmp_path).append("agent_failed", node=1, error=repr(error))
    told = cause(agents(tmp_path, n1=1))
    assert told.startswith("the torchrun agent of node 1 failed: ") and "No space left" in told
