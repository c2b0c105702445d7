"""Stages at published times, and without computation: over gloo, without shapers."""

import pytest

from tests.pipeline.test_training import require_equal
from tests.pipeline.training import Trained, train

PARTS, BATCH, DENSITY = 4, 6, 0.25
EXACT = ("parallel=pipeline", "activations=dct_mp", f"activations.density={DENSITY}")
QUICK = ("model.times.forward_s=0.016", "model.times.backward_s=0.032")  # of 16, here 6, samples
MOST = 0.7  # of a step; the rest is this machine's
FORWARD_S, BACKWARD_S = 0.016 * BATCH / 16, 0.032 * BATCH / 16


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Trained]:
    found = {"measured": (*EXACT, "steps=4")}
    found["paced"] = (*found["measured"], *QUICK, "emulation.compute=paced")
    found["replay"] = (*found["measured"], *QUICK, "emulation.compute=replay", "eval_every=2")
    found["sketch"] = (*found["replay"], "activations=sketch", "activations.density=0.5")
    return train(tmp_path_factory.mktemp("paced"), 4, found, saved=("measured", "paced"))


def test_times_change_nothing_else(runs) -> None:
    require_equal(runs["measured"], runs["paced"])
    columns = ["step", "rank", "samples", "sent_bytes", "received_bytes", "activation_bytes"]
    measured, paced = (runs[n].steps.sort_values(["step", "rank"]) for n in ("measured", "paced"))
    assert (measured[columns].to_numpy() == paced[columns].to_numpy()).all()


@pytest.mark.parametrize("name", ["paced", "replay"])
def test_the_stages_of_a_pipeline_share_the_models_times(name, runs) -> None:
    """None computes for less than its share, and most of what is not computing is told."""
    steps = runs[name].steps
    of_a_pipeline = steps[steps["rank"] < 2].groupby("step").compute_s.sum()
    assert (of_a_pipeline >= PARTS * (FORWARD_S + BACKWARD_S) - 1e-9).all()
    for _, rows in steps.groupby("rank"):
        took = rows.time_s.diff()[1:]
        told = (rows.compute_s + rows.compress_s + rows.exposed_s)[1:]
        assert (told <= took + 1e-9).all() and (told >= MOST * took).all()


def test_replayed_messages_have_the_sizes_of_the_formula(runs) -> None:
    """A quarter of every row, and its bitmap; the gradient of just these."""
    rows = runs["replay"].steps
    first, last = (rows[rows["rank"] == rank] for rank in (0, 1))
    entries = first.dense_activation_bytes // 4
    values = (first.achieved_activation_density * entries).round()
    assert (values.to_numpy() == PARTS * BATCH * (DENSITY * 48)).all()
    assert (first.activation_bytes == 4 * values + entries / 8).all()
    assert (last.activation_bytes.to_numpy() == 4 * values.to_numpy()).all()
    dense = runs["measured"].steps
    assert sorted(rows.dense_bytes) == sorted(dense.dense_bytes)
    sketched = runs["sketch"].steps
    assert (sketched[sketched["rank"] == 0].activation_bytes * 2 == 4 * entries.to_numpy()).all()


def test_replayed_there_is_no_loss_and_nothing_to_evaluate(runs) -> None:
    assert runs["replay"].steps.loss.isna().all()
    assert runs["replay"].evaluations.empty
    assert not any(runs["replay"].drifted)
