"""Whole runs with a server over real shaped packets, and the death of its processes."""

import json
import os
import signal
from pathlib import Path

import pandas as pd
import pytest

from profiles.base import WAYS
from tests.aftermath import SETTLED, remains, status, traces
from tests.launching import processes, run_with, runs, start, until

pytestmark = pytest.mark.launch

TINY = ("model=mlp", "workers=2", "profile.rate_mbit=100", "steps=8", "eval_every=4")
ENDLESS = ("steps=100000", "timeouts.stop_s=15")
LONG = ("model=mlp", "workers=2", "profile.rate_mbit=100", "eval_every=100000")


def hit(results: Path, victim: str, *overrides: str) -> tuple[Path, str]:
    """A run of which the process `victim` is killed under way; what was told, after its end."""
    running = start(*LONG, *overrides, results=results)
    run = until(lambda: run_with(results, "pushes.csv", 6), "pushes", 280)
    assert isinstance(run, Path)
    seen = traces(running.pid)
    [process] = set(processes(victim)) & set(seen.processes)
    os.kill(process, signal.SIGKILL)
    told, _ = running.communicate(timeout=200)
    until(lambda: not remains(seen), "nothing left")
    return run, told


def events(run: Path, name: str) -> list[dict]:
    lines = (run / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_bytes_are_counted_and_cross_the_shapers_of_every_node(tmp_path):
    told_to_user, _ = start("method=dct_ps", *TINY, results=tmp_path).communicate(timeout=250)
    [run] = runs(tmp_path)
    told, summary = status(run), json.loads((run / "summary.json").read_text())
    assert told["state"] in SETTLED, told_to_user
    assert not any("path around" in reason or "traffic" in reason for reason in summary["reasons"])
    proof, steps = summary["proof"], pd.read_csv(run / "steps.csv")
    assert set(proof["passed_bytes"]) == {f"{way}{node}" for way in WAYS for node in range(3)}
    for node in range(3):
        sent = proof["sent_bytes_by_node"][str(node)]
        assert 0.98 * sent <= proof["passed_bytes"][f"up{node}"] <= 1.25 * sent + (1 << 20)
    assert abs(proof["sent_bytes_by_node"]["2"] - steps.received_bytes.sum()) < 4096
    assert summary["server"]["applied"] == 16
    assert set(pd.read_csv(run / "evaluations.csv").step) == {4, 8}


def test_a_server_that_is_killed_is_named_and_leaves_nothing(tmp_path):
    run, told = hit(tmp_path, "harness: parameter server", "method=dct_ps_async", *ENDLESS)
    assert status(run)["state"] == "failed"
    assert status(run)["error"] == "the parameter server was killed by SIGKILL"
    reports = events(run, "rank_failed")
    assert {report["rank"] for report in reports} == {0, 1}
    for report in reports:
        assert report["peer"] and "ServerLost: the parameter server is lost" in report["traceback"]


def test_a_trainer_that_is_killed_ends_the_run_with_its_rank(tmp_path):
    run, output = hit(tmp_path, "harness: trainer rank 1", "method=dct_ps_async", *ENDLESS)
    assert status(run)["state"] == "failed"
    assert status(run)["error"] == "the trainer rank 1 was killed by SIGKILL"
    last = output.strip().splitlines()[-1]
    assert last == "run failed: the trainer rank 1 was killed by SIGKILL"
