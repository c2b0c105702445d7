"""scale=laptop keeps a paper's communication to computation: rates and step times, computed."""

import pytest
import torch

from harness.config import scales, sweep
from harness.config.settings import Settings
from tests.test_settings import EXPERIMENTS, settings

SCALES = ("laptop", "paper")
SCALED = [name for name in EXPERIMENTS if name.startswith(("dc2_", "netsense_"))]


def parameters(found: Settings) -> int:
    model, data = found.build("model"), found.build("dataset")
    with torch.device("meta"):
        network = model.build(data.shape, data.classes)
    return sum(parameter.numel() for parameter in network.parameters())


def step_s(found: Settings) -> float:
    times = found.build("model").times.at(found["batch_size"])
    return times.forward_s + times.backward_s


@pytest.mark.parametrize("experiment", SCALED)
def test_a_stand_in_has_the_papers_times_and_rates_in_proportion_to_its_size(experiment):
    laptop, paper = (settings(f"+experiment={experiment}", f"scale={s}") for s in SCALES)
    assert step_s(laptop) == pytest.approx(step_s(paper), rel=1e-3)
    ratio = parameters(laptop) / parameters(paper)
    small, large = (found.build("profile").extremes() for found in (laptop, paper))
    expected = [ratio * large.lowest_mbit, ratio * large.highest_mbit, *large[2:]]
    assert list(small) == pytest.approx(expected, rel=3e-3)  # weights come in rows


@pytest.mark.parametrize(("said", "may"), [
    ("method=topk", False),
    ("emulation.dilation=2", False),
    ("+experiment=dc2_imagenet_dynamic", True),
    ("results='of/${scale.name}'", True),
])  # fmt: skip
def test_what_says_nothing_of_the_scale_is_composed_at_one(said: str, may: bool) -> None:
    with sweep.hydra():
        assert scales.may_depend_on_scale(sweep.load([said])) == may
