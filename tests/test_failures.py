"""Failures of every process of a run: told truly, ended soon, and nothing left behind."""

import json
import os
import signal
import time

import pytest

from tests.launching import (
    TINY,
    harness,
    network_namespaces,
    processes,
    runs,
    start,
    state,
    training,
    until,
)

pytestmark = pytest.mark.launch

LONG = (*TINY, "steps=100000")


def test_a_failing_worker_shows_its_traceback_and_ends_the_run(tmp_path):
    done = harness(*TINY, "compressor._target_=tests.faults.BreaksAtStep", results=tmp_path)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "rank 1: ArithmeticError: this compressor breaks on purpose" in text
    assert "tests/faults.py" in text
    [run] = runs(tmp_path)
    assert state(run) == "failed"


def test_a_bad_exit_after_the_results_is_not_a_failed_run(tmp_path):
    done = harness(*TINY, "compressor._target_=tests.faults.DiesWhenLeaving", results=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    [run] = runs(tmp_path)
    assert state(run) == "succeeded"
    assert "1" in json.loads((run / "summary.json").read_text())["bad_exits_after_results"]


def nothing_left(run, namespaces):
    until(lambda: not processes(str(run)) and not processes("harness: "), "all processes gone", 10)
    until(lambda: network_namespaces() <= namespaces, "all namespaces gone", 10)
    assert not [
        name for name in os.listdir("/sys/class/net") if name.startswith(("br", "up", "p0"))
    ]


def victim(kind):
    """Process id to kill: the runner is known to its parent, others by their titles."""
    [pid] = processes({"agent": "torchrun agent of node 1", "worker": "worker rank 1"}[kind])
    return pid


@pytest.mark.parametrize("kind", ["runner", "agent", "worker", "supervisor"])
def test_kill_9_leaves_nothing_and_the_same_command_completes(kind, tmp_path):
    namespaces = network_namespaces()
    running = start("-m", *TINY, "steps=60", "seed=0,1", results=tmp_path)
    run = until(lambda: training(tmp_path), "training")
    if kind == "supervisor":
        target = max(processes("harness.supervise"))  # unshare's child, not unshare itself
    else:
        target = running.pid if kind == "runner" else victim(kind)
    os.kill(target, signal.SIGKILL)
    if kind == "runner":
        running.wait()
        until(lambda: state(run) != "running", "the truth in status.json", 10)
        assert state(run) == "interrupted"
    else:
        until(lambda: state(run) != "running", "the end, long before any timeout", 10)
        assert state(run) == "failed"
        output, _ = running.communicate(timeout=120)
        assert ("the supervisor ended" if kind == "supervisor" else "SIGKILL") in output
        assert running.returncode == 1
    nothing_left(run, namespaces)
    again = harness("-m", *TINY, "steps=60", "seed=0,1", results=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert [state(path) for path in runs(tmp_path)] == ["succeeded"] * 2
    if kind != "runner":
        assert "skipped" in again.stdout + again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_in_order_and_the_sweep_goes_on_later(number, tmp_path):
    namespaces = network_namespaces()
    running = start(*LONG, results=tmp_path)
    run = until(lambda: training(tmp_path), "training")
    os.kill(running.pid, number)
    output, _ = running.communicate(timeout=10)
    assert running.returncode == 130
    assert state(run) == "interrupted"
    assert "Traceback" not in output
    nothing_left(run, namespaces)


def test_a_silent_peer_ends_the_run_within_the_timeout(tmp_path):
    running = start(*LONG, "timeouts.exchange_s=5", results=tmp_path)
    run = until(lambda: training(tmp_path), "training")
    os.kill(victim("worker"), signal.SIGSTOP)
    began = time.monotonic()
    output, _ = running.communicate(timeout=60)
    assert state(run) == "failed"
    assert 4 < time.monotonic() - began < 20
    assert "Timed out" in output
