"""Failures inside a run: told truly, with the traceback that matters, and ended soon."""

import json
import os
import signal
import time

import pytest

from harness.cli import run_queue
from tests.aftermath import SETTLED, remains, traces
from tests.launching import (
    TINY,
    harness,
    own_reasons,
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
    place = "in tests.faults.BreaksAtStep.reduce"
    last = f"rank 1: ArithmeticError: this compressor breaks on purpose, {place}"
    assert done.stdout.splitlines()[-1] == f"run failed: {last}"
    assert "tests/faults.py" in text
    [run] = runs(tmp_path)
    assert state(run) == "failed"


def test_a_part_that_breaks_its_interface_is_named_in_one_line(tmp_path):
    done = harness(*TINY, "compressor._target_=tests.faults.ReturnsShort", results=tmp_path)
    text = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in text, text
    assert "tests.faults.ReturnsShort.reduce().mean must be" in done.stdout.splitlines()[-1]
    [run] = runs(tmp_path)
    logs = "".join(log.read_text() for log in (run / "logs").glob("rank*.log"))
    assert state(run) == "failed" and "Traceback" in logs


def test_a_bad_exit_after_the_results_is_not_a_failed_run(tmp_path):
    done = harness(*TINY, "compressor._target_=tests.faults.DiesWhenLeaving", results=tmp_path)
    [run] = runs(tmp_path)
    assert state(run) in SETTLED and own_reasons(run) == [], done.stdout + done.stderr
    assert done.returncode == (0 if state(run) == "succeeded" else run_queue.NOT_VALID)
    assert json.loads((run / "summary.json").read_text())["bad_exits_after_results"]["1"] == 1


def test_a_silent_peer_ends_the_run_within_the_timeout(tmp_path):
    running = start(*LONG, "timeouts.exchange_s=5", results=tmp_path)
    run = until(lambda: training(tmp_path), "training")
    seen = traces(running.pid)
    [worker] = set(processes("worker rank 1")) & set(seen.processes)
    os.kill(worker, signal.SIGSTOP)
    began = time.monotonic()
    output, _ = running.communicate(timeout=60)
    assert state(run) == "failed"
    assert 4 < time.monotonic() - began < 45
    assert "Timed out" in output
    assert remains(seen) == []
