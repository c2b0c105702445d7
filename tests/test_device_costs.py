"""What a device's compression is said to take: of each compressor its own, by what it works on."""

from math import log2

import pandas as pd
import pytest

from harness.config.device_costs import Cost, Given, given
from harness.config.scales import composed
from harness.config.settings import BadSetting
from tests.virtual.runs import simulated

ASKED = ("steps=4", "workers=2", "emulation.compute=replay", "network/device=v100")
PLACE = "network.device.costs.dct_dp"
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


@pytest.mark.parametrize("way", ["data", "server"])
def test_a_threshold_costs_a_search_in_the_steps_that_seek_it_anew(way, tmp_path):
    """A sort grows with n log n; without, a step costs the passes over its elements alone."""
    of = {"element_ns": 1.0, "sort_ns": 4.0, "partition_ns": 2.0}
    asked = ("steps=6", "workers=1", "emulation.compute=paced", "model=mlp", "method=dct_dp")
    asked += (f"parallel={way}", "compressor.refresh=paper", "compressor.lifespan=3")
    asked += ("network/device=v100", *(f"++{PLACE}.{key}={value}" for key, value in of.items()))
    sizes = [64 * 256, 256, 256 * 256, 256, 256 * 256, 256, 256 * 10, 10]
    passes = 1e-9 * sum(sizes)
    for selection, search in (
        ("sort", 4e-9 * sum(n * log2(n) for n in sizes)),
        ("partition", 2e-9 * sum(sizes)),
        ("sample", 0.0),
    ):
        run = simulated(tmp_path / selection, *asked, f"compressor.selection={selection}")
        took_s = pd.read_csv(run / "steps.csv").compress_s
        expected = [passes + (search if step % 3 == 0 else 0.0) for step in range(6)]
        assert took_s.to_numpy() == pytest.approx(expected), selection


def test_a_stand_ins_sorts_are_of_the_elements_that_they_represent():
    cost = Given(Cost(sort_ns=1.0), represented=1 << 20)
    assert cost.search_s({"sort": [1 << 10]}, of=1 << 10) == pytest.approx(20e-9 * (1 << 20))
    assert cost.search_s({}, of=1 << 10) == 0


@pytest.mark.parametrize(("told", "said"), [
    ("network.device=v100", "network/device=v100"),
    ("+network.device.costs.topk=20", "some of bucket_us, matrix_us"),
    ("+network.device.costs.topk.per_bit=1", "some of bucket_us, matrix_us"),
    ("+network.device.costs.topk.element_ns=-1", "costs.topk.element_ns"),
])  # fmt: skip
def test_what_is_no_cost_is_refused(told, said):
    with pytest.raises(BadSetting, match=said):
        composed(["network=simulated", told])
