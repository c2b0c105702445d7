"""Pipelines on real shaped packets: a valid run, with its proof, and what a dead stage does."""

import json

import pandas as pd
import pytest
import torch

from tests.launching import harness, runs, worked

pytestmark = pytest.mark.launch


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    results = tmp_path_factory.mktemp("hybrid")
    done = harness(
        "parallel=pipeline", "method=dct_hybrid", "controller.density=0.1", "workers=4", "steps=8",
        "eval_every=4", "accumulate=4", "optimizer.lr=0.05", "profile=fluctuating",
        "profile.low_mbit=50", "profile.high_mbit=200", results=results,
    )  # fmt: skip
    [run] = runs(results)
    assert worked(done, run), done.stdout + done.stderr
    return run


def test_both_kinds_of_traffic_cross_the_shapers_and_are_counted(hybrid) -> None:
    summary = json.loads((hybrid / "summary.json").read_text())
    steps, proof = pd.read_csv(hybrid / "steps.csv"), summary["proof"]
    assert (steps.activation_bytes > 0).all()
    assert (steps.sent_bytes > steps.activation_bytes).all()
    for node in range(4):
        sent = proof["sent_bytes_by_node"][str(node)]
        assert sent >= steps[steps["rank"] == node].sent_bytes.sum()  # and evaluations
        assert 0.98 * sent <= proof["passed_bytes"][f"up{node}"] <= 2 * sent


def test_the_checkpoint_is_that_of_the_whole_model(hybrid) -> None:
    from harness.workloads.models.convnet import ConvNet

    saved = torch.load(hybrid / "checkpoint" / "model.pt", weights_only=True)
    ConvNet().build((1, 8, 8), 10).load_state_dict(saved["model"])
