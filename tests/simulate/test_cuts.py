"""Cuts in the model of a single worker: in virtual time it trains what a rank of its own does."""

from pathlib import Path

import pytest
import torch

from harness.analysis import load
from harness.settings import BadSetting
from tests.simulate.runs import DETERMINED, over_gloo, settings_of, simulated, weights

CUT = ("workers=1", "batch_size=16", "parallel=split", "parallel.stages=3", "model=mlp",
       "model.hidden=[40,32]", "optimizer.lr=0.3")  # fmt: skip
SCHEMES = {
    "laplace": ("method=dct_mp_laplace", "activations.memory=0.5"),
    "gradients": ("method=topk_grad",),
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
    for column in ("loss", "activation_occupancy", "activation_bytes", "occupancy"):
        assert one[column].equals(other[column]), column
    assert load.evaluations(real).value.equals(load.evaluations(whole).value)


def test_the_cuts_have_an_effect(scheme, whole, tmp_path) -> None:
    uncut = [word for word in scheme if not word.startswith(("parallel", "method", "activations"))]
    uncut = [word for word in uncut if "controller" not in word]
    without = simulated(tmp_path / "uncut", "steps=6", *uncut, *DETERMINED)
    assert not torch.equal(weights(without)["1.weight"], weights(whole)["1.weight"])
    assert load.steps(without).activation_occupancy.isna().all()
    assert load.steps(whole).activation_occupancy.between(0, 1).all()


def test_it_goes_on_with_what_the_cuts_have_learnt(scheme, whole, tmp_path) -> None:
    begun = simulated(tmp_path / "begun", "steps=4", *scheme, *DETERMINED)
    went_on = simulated(tmp_path / "on", "steps=6", f"resume_from={begun}", *scheme, *DETERMINED)
    for name, value in weights(went_on).items():
        assert torch.equal(value, weights(whole)[name]), name


def test_workers_that_would_share_the_cuts_are_refused() -> None:
    with pytest.raises(BadSetting, match="network must have packets with parallel=split and work"):
        settings_of(*CUT, "workers=2", "method=dct_mp", "steps=1")
