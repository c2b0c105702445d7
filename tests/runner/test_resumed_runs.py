"""The command, going on from a checkpoint: clock, profile and records continue, or one line."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.records.run_directory import read_events
from tests.aftermath import SETTLED
from tests.launching import harness, runs, state

pytestmark = pytest.mark.launch

RUN = ("workers=2", "model=convnet", "dataset=digits", "method=topk", "controller.density=0.1",
       "eval_every=100")  # fmt: skip
RUN += ("profile=square", "profile.high_mbit=200", "profile.low_mbit=100", "profile.period_s=1.0")


def run_of(folder: Path, *overrides: str) -> Path:
    done = harness(*RUN, *overrides, results=folder)
    [run] = runs(folder)
    assert state(run) in SETTLED, done.stdout + done.stderr
    return run


def checkpoint(run: Path) -> dict[str, Any]:
    return json.loads((run / "checkpoint" / "manifest.json").read_text())


def test_a_run_goes_on_from_another(tmp_path: Path) -> None:
    first = run_of(tmp_path / "first", "steps=8")
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    second = run_of(tmp_path / "second", "steps=16", f"resume_from={first}")
    assert before == {path: path.stat().st_mtime_ns for path in first.rglob("*")}

    kept, began_s = checkpoint(first), checkpoint(first)["time_s"]
    events = {event["event"]: event for event in read_events(second)}
    assert events["resumed"]["step"] == 8 and events["resumed"]["digest"] == kept["digest"]
    assert events["step_0"]["time_s"] == events["resumed"]["time_s"] == began_s
    steps, links = pd.read_csv(second / "steps.csv"), pd.read_csv(second / "links.csv")
    assert sorted(set(steps["step"])) == list(range(8, 16))
    assert steps["time_s"].min() > began_s and links["time_s"].min() >= began_s
    summary = json.loads((second / "summary.json").read_text())
    took_s = steps["time_s"].max() - began_s
    assert summary["throughput"] == pytest.approx(8 * 2 * 16 / took_s)

    refused = harness(
        *RUN, "steps=16", f"resume_from={first}", "workers=4", results=tmp_path / "no"
    )
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused.stderr
    assert "resume_from: needs workers=2 (now 4), as" in refused.stderr
    assert not runs(tmp_path / "no")
