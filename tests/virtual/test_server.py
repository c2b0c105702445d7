"""A parameter server in virtual time: what it trains, sends and takes is what processes would."""

import pandas as pd
import pytest
import torch

from harness.predict import plan
from tests.parameter_server.scenes import run_of, train
from tests.virtual.runs import DETERMINED, settings_of, simulated, weights

TINY = ("parallel=server", "model=mlp", "steps=6", "eval_every=3", "workers=2")
SYNC = {"dense": TINY,
        "sparse": (*TINY, "method=dct_ps", "parallel.drain_period=20"),
        "clipped": (*TINY, "optimizer.clip_norm=0.5", "accumulate=2", "precision=bf16"),
        "norms": (*TINY, "model=resnet20", "model.depth=8", "steps=3", "batch_size=8")}  # fmt: skip
EQUAL = ["step", "rank", "samples", "loss", "sent_bytes", "received_bytes", "dense_bytes",
         "density", "achieved_density"]  # fmt: skip
ASYNC = (*TINY, "method=dct_ps_async", "parallel.threads=2", "workers=3", "steps=8")


def rows(run, name: str) -> pd.DataFrame:
    return pd.read_csv(run / name).sort_values(["step", "rank"]).reset_index(drop=True)


@pytest.mark.parametrize("name", SYNC)
def test_in_step_weights_losses_and_bytes_are_those_of_real_sockets(name, tmp_path):
    theirs = train(tmp_path / "sockets", run_of(*SYNC[name]))
    ours = simulated(tmp_path / "run", *SYNC[name], *DETERMINED)
    expected = weights(theirs)
    for parameter, value in weights(ours).items():
        assert torch.equal(value, expected[parameter]), parameter
    pd.testing.assert_frame_equal(rows(ours, "steps.csv")[EQUAL], rows(theirs, "steps.csv")[EQUAL])
    evaluated, wanted = (pd.read_csv(run / "evaluations.csv") for run in (ours, theirs))
    assert evaluated.value.tolist() == wanted.value.tolist()


def test_an_asynchronous_run_is_the_same_every_time(tmp_path):
    """Whoever comes first in emulated time is first, also where messages scatter."""
    asked = (*ASYNC, *DETERMINED, "network.noise=0.2", "profile=square", "eval_every=4")
    first, again = (simulated(tmp_path / name, *asked) for name in ("first", "again"))
    for name in ("steps.csv", "pushes.csv", "links.csv", "timeline.csv", "evaluations.csv"):
        assert (first / name).read_text() == (again / name).read_text(), name
    pushes = pd.read_csv(first / "pushes.csv")
    assert sorted(pushes.version) == list(range(24)) and pushes.staleness.max() > 0
    assert pushes.time_s.is_monotonic_increasing


@pytest.mark.parametrize(("method", "workers"), [("dct_ps", 2), ("dct_ps_async", 1)])
def test_it_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(method, workers, tmp_path):
    """Asynchronous ones that are to end do not begin what others do when they are stopped."""
    asked = (*TINY, f"method={method}", f"workers={workers}", *DETERMINED)
    whole = simulated(tmp_path / "whole", *asked)
    begun = simulated(tmp_path / "begun", *asked, "steps=3")
    went_on = simulated(tmp_path / "on", *asked, f"resume_from={begun}")
    for name, value in weights(went_on).items():
        assert torch.equal(value, weights(whole)[name]), name
    last, expected = (rows(run, "steps.csv").iloc[-3 * workers :] for run in (went_on, whole))
    waits = expected.time_s.to_numpy() - last.time_s.to_numpy()
    assert waits == pytest.approx(0.0002, abs=3e-6)  # for the answer to the last push before


def test_pulls_and_pushes_share_the_link_of_the_server(tmp_path):
    """P trainers in step wait P times as long as one, when nothing else takes time."""
    quiet = ("network.alpha_s=0", "network.operation_s=0", "profile.rate_mbit=1", *DETERMINED)
    took = {}
    for workers in (1, 4):
        run = simulated(tmp_path / f"{workers}", *TINY, *quiet, f"workers={workers}", "steps=2")
        took[workers] = rows(run, "steps.csv").comm_s.mean()
    assert took[4] == pytest.approx(4 * took[1], rel=1e-6)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_plan_is_the_program_itself_without_a_model(mode, tmp_path):
    """Some steps stand for the others: over links that do not change it tells the run's time."""
    asked = (*TINY, f"parallel.mode={mode}", "steps=30", "eval_every=100", *DETERMINED)
    predicted = plan.predict(settings_of(*asked).run())
    steps = rows(simulated(tmp_path / "run", *asked), "steps.csv")
    assert predicted.steps == 30
    assert predicted.time_s == pytest.approx(steps.time_s.max(), rel=0.02)
    assert predicted.sent_bytes == steps[steps["rank"] == 0].sent_bytes.sum()
