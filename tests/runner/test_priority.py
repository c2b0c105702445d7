"""Ranks run before other programs as far as the user may arrange it, and nothing else ever does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.runner import priority
from harness.runner.priority import GROUP, Priority
from tests.launching import TINY, harness, own_reasons, runs, state

RANK = """
import os, sys, threading, time
from setproctitle import setthreadtitle
if sys.argv[1] == "leads":
    os.setsid()
def work(name):
    setthreadtitle(name)
    named.wait()
    if name == "exchange":
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    started.wait()
    time.sleep(60)
named, started = threading.Barrier(3), threading.Barrier(3)
for name in ("exchange", "computes"):
    threading.Thread(target=work, args=(name,), daemon=True).start()
named.wait()
started.wait()
print("ready", flush=True)
time.sleep(60)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
HOG = (sys.executable, "-c", "while True: pass")


@contextmanager
def rank(leads: bool = True) -> Iterator[int]:
    """A process with threads as a rank has them."""
    command = [sys.executable, "-c", RANK, "leads" if leads else "follows"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def nice_of(process: int) -> str:
    """Nice value of the session; empty where sessions have no share of their own."""
    return Path(f"/proc/{process}/autogroup").read_text().rpartition(" ")[2].strip()


def policies(process: int) -> dict[str, int]:
    """Policy of each thread, by name."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return {(t / "comm").read_text().strip(): os.sched_getscheduler(int(t.name)) for t in threads}


@needs_root
def test_exchange_threads_of_a_session_run_first_and_no_other_does():
    before = nice_of(os.getpid()), policies(os.getpid())
    with rank() as leader, rank(leads=False) as follower:
        found = Priority([leader, follower])
        if "autogroup" not in found.obtained:
            pytest.skip("sessions have no share of their own here")
        assert nice_of(leader) == "-20" and nice_of(follower) == before[0]
        of_leader = policies(leader)
        first = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        assert of_leader.pop("exchange") == first and found.obtained[-1] == "SCHED_RR"
        assert {*of_leader.values(), *policies(follower).values()} == {os.SCHED_OTHER}
    assert (nice_of(os.getpid()), policies(os.getpid())) == before
    found.look()  # they have ended
    found.close()


@pytest.mark.parametrize(("limit_us", "autogroup"), [("-1", "1"), ("950000", "0")])
@needs_root
def test_without_a_limit_or_a_weight_no_thread_runs_in_real_time(
    tmp_path, monkeypatch, limit_us, autogroup
):
    """The rank is real, what the kernel tells of itself is not."""
    kernel = tmp_path / "sys/kernel"
    kernel.mkdir(parents=True)
    (kernel / "sched_rt_runtime_us").write_text(limit_us)
    (kernel / "sched_autogroup_enabled").write_text(autogroup)
    (tmp_path / "self").symlink_to("/proc/self")
    with rank() as leader:
        (tmp_path / str(leader)).symlink_to(f"/proc/{leader}")
        monkeypatch.setattr(priority, "PROCESSES", tmp_path)
        found = Priority([leader])
        assert "SCHED_RR" not in found.obtained and found.obtained[0] == "session"
        assert set(policies(leader).values()) == {os.SCHED_OTHER}


@pytest.mark.parametrize("files", [("cpu.weight", "cgroup.procs"), ("cgroup.procs",)])
def test_a_delegated_group_is_used_where_it_has_a_weight(tmp_path, monkeypatch, files):
    """Folders stand for the kernel's, which make their own files."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("4:memory:/x\n0::/user/app.slice/shell.scope\n")
    group = tmp_path / "user/app.slice" / GROUP
    group.mkdir(parents=True)
    for name in files:
        (group / name).write_text("")
    monkeypatch.setattr(priority, "PROCESSES", tmp_path)
    monkeypatch.setattr(priority, "CGROUPS", tmp_path)
    with rank() as leader:
        found = Priority([leader])
        assert ("cgroup" in found.obtained) == ("cpu.weight" in files)
        if "cpu.weight" in files:
            assert (group / "cpu.weight").read_text() == "10000"
            assert (group / "cgroup.procs").read_text() == str(leader)


def test_without_ranks_of_their_own_sessions_nothing_is_obtained():
    with rank(leads=False) as follower:
        assert Priority([follower]).obtained == []


@pytest.mark.launch
@pytest.mark.parametrize("asked", ["auto", pytest.param("none", marks=pytest.mark.long)])
def test_a_run_tells_what_it_obtained_and_leaves_all_others_as_they_were(tmp_path, asked):
    with rank() as bystander:
        before = [(nice_of(each), policies(each)) for each in (bystander, os.getpid())]
        harness(*TINY, f"emulation.priority={asked}", results=tmp_path)
        assert before == [(nice_of(each), policies(each)) for each in (bystander, os.getpid())]
    [run] = runs(tmp_path)
    obtained = json.loads((run / "environment.json").read_text())["priority"]
    assert state(run) != "failed" and ("session" in obtained) == (asked == "auto")
    assert asked == "auto" or obtained == []


@pytest.mark.launch
@pytest.mark.long
def test_a_run_beside_busy_loops_has_a_grade_or_says_why_not(tmp_path):
    """Its bound is made of what the kernel counted, whatever came out."""
    quick = ("+experiment=quickstart", "method=powersgd", "profile=static")
    hogs = [subprocess.Popen(HOG) for _ in range(os.cpu_count() or 1)]
    try:
        harness(*quick, "profile.rate_mbit=32", "steps=40", results=tmp_path)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    [run] = runs(tmp_path)
    summary = json.loads((run / "summary.json").read_text())
    print(summary["grade"], summary["late_at_most_share"], summary["reasons"])
    if summary["grade"] == "invalid":
        assert summary["late_at_most_share"] > 0.25 or own_reasons(run) == []
        assert state(run) == "invalid" and summary["reasons"]
    else:
        assert state(run) == "succeeded" and summary["late_at_most_share"] <= 0.25
