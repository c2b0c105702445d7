"""Gossip over packets: what workers tell each other to evaluate passes shaped links too."""

from pathlib import Path

import pytest

from harness.records.run_directory import read_events
from tests.aftermath import SETTLED, status
from tests.launching import harness, runs

NOLOCO = ("method=noloco", "parallel.h=2", "workers=3", "steps=4", "eval_every=2")
SHORT = ("model=convnet", "dataset=digits", "profile.rate_mbit=100", "network.probe_s=0.2")


@pytest.mark.launch
def test_weights_that_an_evaluation_gathers_are_counted(tmp_path: Path) -> None:
    """Three workers gather more than a stop's allowance; a busy machine may spoil the run."""
    told = harness(*NOLOCO, *SHORT, "emulation.compute=paced", results=tmp_path)
    [run] = runs(tmp_path)
    assert status(run)["state"] in SETTLED, told.stdout + told.stderr
    assert "other traffic" not in (status(run)["error"] or "")
    ends = [event for event in read_events(run) if event["event"] == "rank_finished"]
    assert len(ends) == 3 and all(min(end["aside_bytes"]) > 1_000_000 for end in ends)
