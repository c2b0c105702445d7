"""What a device's compression is said to take: of each compressor its own, by what it works on."""

import pandas as pd
import pytest

from harness.config.device_costs import Cost, Given, given
from harness.config.settings import BadSetting
from harness.preview import composed
from tests.virtual.runs import simulated

ASKED = ("steps=4", "workers=2", "emulation.compute=replay", "network/device=v100")
COSTS = {"costs": {"dense": {"element_ns": 0}, "topk": {"element_ns": 10, "bucket_us": 5}}}


def test_a_bucket_costs_what_its_parts_do():
    shapes = [(8, 3, 2), (5,), (4, 10)]  # matrices of 48 and 40 elements, and a vector
    elements, rank = 48 + 5 + 40, 6
    parts = {  # by coefficient: how often it counts, in seconds
        "bucket_us": 1e-6,
        "matrix_us": 2e-6,
        "column_us": (6 + 4) * 1e-6,
        "element_ns": elements * 1e-9,
        "rank_ns": (6 * 48 + 4 * 40) * 1e-9,
    }
    for name, seconds in parts.items():
        cost = Given(Cost(**{name: 3.0}), scale=0.5)
        assert cost.seconds(elements, shapes, rank) == pytest.approx(1.5 * seconds), name


def test_every_compressor_has_its_own_cost_or_is_measured():
    assert given("dense", COSTS, 1.0).seconds(10**9) == 0
    assert given("topk", COSTS, 1.0).seconds(1000) == pytest.approx(15e-6)
    assert given("covap", COSTS, 1.0) is None
    others = {"costs": {**COSTS["costs"], "other": {"bucket_us": 1}}}
    assert given("covap", others, 1.0).seconds(1000) == pytest.approx(1e-6)


def test_no_compression_costs_nothing_on_a_device(tmp_path):
    for method, is_free in (("allreduce", True), ("topk", False), ("powersgd", False)):
        run = simulated(tmp_path / method, *ASKED, f"method={method}")
        assert (pd.read_csv(run / "steps.csv").compress_s == 0).all() == is_free


def test_a_stand_in_is_charged_for_the_elements_that_it_represents(tmp_path):
    """Its bucket costs as much of the whole as it has of the elements."""
    asked = (*ASKED, "method=topk", "model=mlp_as_resnet50", "network.alike=true")
    run = simulated(tmp_path / "run", *asked)
    took_s = pd.read_csv(run / "steps.csv").compress_s
    assert took_s.to_numpy() == pytest.approx(
        10.9e-9 * 25557032, rel=0.005
    )  # a row of weights more or less


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("network.device=v100", "network/device=v100"),
        ("+network.device.costs.topk=20", "some of bucket_us, matrix_us"),
        ("+network.device.costs.topk.per_bit=1", "some of bucket_us, matrix_us"),
        ("+network.device.costs.topk.element_ns=-1", "costs.topk.element_ns"),
    ],
)
def test_what_is_no_cost_is_refused(told, said):
    settings, _ = composed(["network=simulated", told])
    with pytest.raises(BadSetting, match=said):
        settings.build("network")
