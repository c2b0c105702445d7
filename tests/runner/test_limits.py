"""A trainer that floods its log, starts processes without end, or never ends has one line of it."""

import ctypes
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from harness.runner import limits
from tests.aftermath import status
from tests.emulation.inside import inside
from tests.launching import TINY, completed, harness, runs

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207


def test_a_long_log_keeps_its_beginning_and_its_end_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MOST_LOG_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "KEPT_LOG_BYTES", 1000)
    log, bounds = tmp_path / "node0.log", limits.Limits(tmp_path, workers=2, run_s=1.0)
    trainer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(5):
        os.write(trainer, b"%7d\n" % number * 140_000)
        bounds.look()
    os.write(trainer, b"the last line\n")
    text = log.read_text()
    assert text.startswith("      0\n" * 100) and text.endswith("      4\nthe last line\n")
    [told] = re.findall(
        r"\[harness: (\d+) bytes are left out here, as a log may have 1 MiB\]", text
    )
    assert 5_598_000 <= int(told) < 5_599_000  # with what was said so before
    assert len(text) < 3000


@inside
def test_process_1_cannot_be_stopped_or_traced_by_what_is_confined() -> None:
    """This is process 1; its child is one."""
    child = os.fork()
    if child == 0:
        limits.confine()
        os.kill(1, signal.SIGSTOP)
        libc = ctypes.CDLL(None)
        seized = libc.ptrace(PTRACE_SEIZE, 1, None, None)
        libc.ptrace(PTRACE_INTERRUPT, 1, None, None)
        try:
            os.close(os.open("/proc/1/mem", os.O_RDWR))
            opened = True
        except OSError:
            opened = False
        time.sleep(0.1)
        state = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[0]
        print(seized, opened, state, file=sys.stderr)
        os._exit(0 if (seized, opened) == (-1, False) and state in "SR" else 1)
    assert os.waitpid(child, 0)[1] == 0


@inside
def test_what_is_confined_may_still_trace_its_own() -> None:
    if os.fork() == 0:
        limits.confine()
        mine = os.fork()
        if mine == 0:
            time.sleep(60)
        seized = ctypes.CDLL(None).ptrace(PTRACE_SEIZE, mine, None, None)
        os.kill(mine, signal.SIGKILL)
        os._exit(seized)
    assert os.wait()[1] == 0


@inside
def test_processes_without_end_are_refused_and_named() -> None:
    """By the kernel, where it counts those of one namespace; by a look everywhere."""
    bounds = limits.Limits(Path("/nowhere"), workers=1, run_s=60.0)
    limits.PROCESSES, limits.PROCESSES_OF_A_WORKER, limits.THREADS_OF_A_PROCESSOR = 40, 10, 0
    bounds.begin()
    bounds.look()
    bomb = os.fork()
    if bomb == 0:
        for _ in range(2000):
            try:
                if os.fork() == 0:
                    time.sleep(60)
            except BlockingIOError:
                break
        time.sleep(60)
    deadline = time.monotonic() + 20
    with pytest.raises(limits.LimitPassed, match="threads, and 1 workers may have 50"):
        while time.monotonic() < deadline:
            bounds._next = 0.0
            bounds.look()
    assert sum(entry.name.isdigit() for entry in Path("/proc").iterdir()) < 500


BOMB = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(600)
    except BlockingIOError:
        time.sleep(0.01)
"""
FLOOD = """
import os
line = b"x" * 65535 + b"\\n"
for _ in range(3200):
    os.write(1, line)
"""  # 200 MiB
ENDLESS = """
import time
while True:
    print("step 1 loss 1", flush=True)
    time.sleep(0.1)
"""


@pytest.mark.launch
@pytest.mark.parametrize(("script", "more", "said"), [
    pytest.param(BOMB, (), "does a trainer start them without end?", id="forks"),
    pytest.param(ENDLESS, ("timeouts.run_s=4",), "within timeouts.run_s = 4 s", id="endless"),
])  # fmt: skip
def test_a_foreign_trainer_beyond_its_limits_fails_with_one_line(tmp_path, script, more, said):
    done = around(tmp_path, script, *more)
    [run] = runs(tmp_path)
    print(status(run)["error"])
    assert done.returncode == 1 and status(run)["state"] == "failed"
    assert said in status(run)["error"] and "\n" not in status(run)["error"]


@pytest.mark.launch
def test_a_foreign_trainer_that_floods_its_log_leaves_a_short_one(tmp_path):
    around(tmp_path, FLOOD)
    [run] = runs(tmp_path)
    assert status(run)["state"] != "running"
    log = run / "logs" / "node0.log"
    assert log.stat().st_size <= limits.MOST_LOG_BYTES + (8 << 20)
    assert b" bytes are left out here, as a log may have 64 MiB]" in log.read_bytes()


def around(results: Path, script: str, *more: str):
    path = results / "trainer.py"
    path.write_text(script)
    asked = ("workers=2", "profile=static", "profile.rate_mbit=200", "network.probe_s=0.2")
    told = (*asked, *more, "metrics=step (?P<step>\\d+) loss (?P<loss>\\S+)", "start=begin|step")
    where = (f"results={results}", "report=false")
    command = [sys.executable, "-m", "harness.around", *told, *where, "--", sys.executable]
    return completed([*command, str(path)], timeout=120)


@pytest.mark.launch
def test_a_rank_that_never_ends_fails_its_run_with_one_line(tmp_path):
    """One rank alone waits for nobody, so no exchange can run out of time."""
    endless = ("workers=1", "steps=1000000", "timeouts.run_s=4")
    done = harness(*(part for part in TINY if "=2" not in part[:9]), *endless, results=tmp_path)
    [run] = runs(tmp_path)
    assert done.returncode == 1 and status(run)["state"] == "failed"
    assert "the run did not end within timeouts.run_s = 4 s" in status(run)["error"]
