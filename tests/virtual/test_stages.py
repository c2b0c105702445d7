"""Pipelines in virtual time: what they train, send and take is what their ranks do over packets."""

import pandas as pd
import pytest
import torch

from tests.pipeline.training import train
from tests.virtual.runs import DETERMINED, settings_of, simulated, weights

SMALL = ("batch_size=6", "accumulate=4", "optimizer.lr=0.3", "eval_every=100", "parallel=pipeline")
MLP = (*SMALL, "model=mlp", "model.hidden=[48,40,32]", "steps=6")
HYBRID = (*MLP, "method=dct_dp", "controller.density=0.1", "compressor.lifespan=4")
RUNS = {
    "dense": (*MLP, "activations=dense"),
    "hybrid": (*HYBRID, "activations=dct_mp"),
    "gpipe": (*HYBRID, "activations=dct_mp", "parallel.schedule=gpipe"),
    "laplace": (*HYBRID, "activations=dct_mp_laplace", "activations.memory=0.5"),
    "clipped": (*HYBRID, "activations=dct_mp", "optimizer.clip_norm=0.1"),
    "norms": (*SMALL, "model=resnet20", "model.depth=8", "activations=dct_mp", "steps=2"),
}
EQUAL = ["step", "rank", "samples", "sent_bytes", "received_bytes", "dense_bytes",
         "activation_bytes", "achieved_activation_density", "density", "achieved_density",
         "loss"]  # fmt: skip


def rows(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(["step", "rank"]).reset_index(drop=True)


@pytest.fixture(scope="module")
def over_packets(tmp_path_factory):
    return train(tmp_path_factory.mktemp("packets"), 4, RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_weights_losses_and_bytes_are_those_of_real_ranks(name, over_packets, tmp_path):
    theirs = over_packets[name]
    ours = simulated(tmp_path / "run", *RUNS[name], "workers=4", *DETERMINED)
    for parameter, value in weights(ours).items():
        assert torch.equal(value, theirs.weights[parameter]), parameter
    mine = rows(pd.read_csv(ours / "steps.csv"))
    pd.testing.assert_frame_equal(mine[EQUAL], rows(theirs.steps)[EQUAL])
    evaluated = pd.read_csv(ours / "evaluations.csv")
    assert evaluated.value.tolist() == theirs.evaluations.value.tolist()


def test_the_same_run_is_the_same_every_time_and_all_its_time_is_told(tmp_path):
    """Of threads that run in the order of their emulated times nothing is left to chance."""
    asked = (*RUNS["clipped"], "workers=4", *DETERMINED, "network.noise=0.1", "profile=square")
    first, again = (simulated(tmp_path / name, *asked) for name in ("first", "again"))
    assert (first / "steps.csv").read_text() == (again / "steps.csv").read_text()
    assert (first / "links.csv").read_text() == (again / "links.csv").read_text()
    drawn = pd.read_csv(first / "timeline.csv")
    assert set(drawn.step) == {3, 4, 5} and set(drawn["rank"]) == set(range(4))
    computed = drawn[drawn.kind.isin(["forward", "backward"])]
    assert (computed.groupby(["step", "rank", "kind"]).bucket.nunique() == 4).all()
    for _, stage in computed.groupby("rank"):  # one thing at a time
        assert (stage.start_s[1:].to_numpy() >= stage.end_s[:-1].to_numpy() - 1e-9).all()
    for _, stage in pd.read_csv(first / "steps.csv").groupby("rank"):
        took = stage.time_s.diff()[1:]
        told = (stage.compute_s + stage.compress_s + stage.exposed_s)[1:]
        assert told.tolist() == pytest.approx(took.tolist())


def test_it_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path):
    asked = (*RUNS["laplace"], "workers=4", *DETERMINED)
    whole = simulated(tmp_path / "whole", *asked)
    begun = simulated(tmp_path / "begun", *asked, "steps=4")
    went_on = simulated(tmp_path / "on", *asked, f"resume_from={begun}")
    for name, value in weights(went_on).items():
        assert torch.equal(value, weights(whole)[name]), name
    last, expected = (rows(pd.read_csv(run / "steps.csv")).iloc[-4:] for run in (went_on, whole))
    assert last.time_s.tolist() == pytest.approx(expected.time_s.tolist())


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [2, 4])
def test_stages_alike_take_what_the_papers_say(schedule, stages, tmp_path):
    """(parts + stages - 1) (forward + backward) of a stage, over a free network (GPipe, 2)."""
    layers = ",".join(["64"] * 8)
    asked = (*SMALL, "model=mlp", f"model.hidden=[{layers}]", "dataset=digits", "steps=2")
    asked += ("activations=dense", f"workers={stages}", f"parallel.stages={stages}")
    asked += (f"parallel.schedule={schedule}", f"parallel.cuts={CUTS[stages]}", "network.alpha_s=0")
    asked += ("network.operation_s=0", "profile.rate_mbit=1000000", *DETERMINED)
    run = simulated(tmp_path / "run", *asked)
    settings = settings_of(*asked)
    times = settings.run().times.at(6)
    steps = pd.read_csv(run / "steps.csv")
    computed = steps[steps.step == 0].set_index("rank").compute_s
    slowest = computed.max() / 4
    assert computed.sum() == pytest.approx(4 * (times.forward_s + times.backward_s))
    least = 4 * slowest + (times.forward_s + times.backward_s - slowest)
    assert steps[steps.step == 0].time_s.max() == pytest.approx(least, rel=1e-3)


CUTS = {2: "[8]", 4: "[4,8,12]"}
