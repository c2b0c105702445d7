"""Cuts in the model of a single worker: in virtual time it trains what a rank of its own does."""

from pathlib import Path

import pytest
import torch

from harness.reporting.analysis import load
from tests.virtual.runs import DETERMINED, over_gloo, simulated, weights

CUT = ("workers=1", "batch_size=16", "parallel=split", "parallel.stages=3", "model=mlp",
       "model.hidden=[40,32]", "optimizer.lr=0.3")  # fmt: skip
SCHEMES = {
    "laplace": ("activations=dct_mp_laplace", "activations.memory=0.5"),
    "gradients": ("activations=topk_grad",),
    "hybrid": ("method=dct_hybrid", "controller.density=0.1"),
}


@pytest.fixture(scope="module", params=SCHEMES)
def scheme(request) -> tuple[str, ...]:
    return (*CUT, *SCHEMES[request.param])


@pytest.fixture(scope="module")
def whole(scheme, tmp_path_factory) -> Path:
    return simulated(tmp_path_factory.mktemp("run") / "whole", "steps=6", *scheme, *DETERMINED)


def test_it_trains_and_records_what_a_rank_does(scheme, whole, tmp_path) -> None:
    real = over_gloo(tmp_path / "real", "steps=6", *scheme)
    for name, value in weights(real).items():
        assert torch.equal(value, weights(whole)[name]), name
    one, other = (load.steps(run) for run in (real, whole))
    for column in ("loss", "achieved_activation_density", "activation_bytes", "achieved_density"):
        assert one[column].equals(other[column]), column
    assert load.evaluations(real).value.equals(load.evaluations(whole).value)


def test_the_cuts_have_an_effect(scheme, whole, tmp_path) -> None:
    uncut = [word for word in scheme if not word.startswith(("parallel", "method", "activations"))]
    uncut = [word for word in uncut if "controller" not in word]
    without = simulated(tmp_path / "uncut", "steps=6", *uncut, *DETERMINED)
    assert not torch.equal(weights(without)["1.weight"], weights(whole)["1.weight"])
    assert load.steps(without).achieved_activation_density.isna().all()
    assert load.steps(whole).achieved_activation_density.between(0, 1).all()


def test_it_goes_on_with_what_the_cuts_have_learnt(scheme, whole, tmp_path) -> None:
    begun = simulated(tmp_path / "begun", "steps=4", *scheme, *DETERMINED)
    went_on = simulated(tmp_path / "on", "steps=6", f"resume_from={begun}", *scheme, *DETERMINED)
    for name, value in weights(went_on).items():
        assert torch.equal(value, weights(whole)[name]), name


def test_several_workers_have_cuts_of_their_own(tmp_path) -> None:
    """Each learns its own thresholds, though they share a model."""
    asked = (*CUT, *SCHEMES["laplace"], "workers=3", "batch_size=8", "steps=6")
    ours = simulated(tmp_path / "ours", *asked, *DETERMINED)
    theirs = over_gloo(tmp_path / "theirs", *asked)
    for name, value in weights(theirs).items():
        assert torch.equal(value, weights(ours)[name]), name
    one, other = (load.steps(run).sort_values(["step", "rank"]) for run in (theirs, ours))
    for column in ("loss", "achieved_activation_density"):
        assert one[column].tolist() == other[column].tolist(), column
    assert one[one.step == 5].achieved_activation_density.nunique() > 1
    assert load.evaluations(ours).value.equals(load.evaluations(theirs).value)
