"""The fixed density, and the warm-up of a density."""

import pytest

from controllers.fixed import Fixed
from controllers.warmup import WarmUp
from tests.controllers.observations import seen


def test_it_never_changes() -> None:
    controller = Fixed(density=0.25)
    assert controller.density(None) == 0.25
    assert controller.state() == {}
    assert controller.same_everywhere


def densities(controller: WarmUp, steps: int) -> list[float]:
    past = [seen(step) for step in range(steps - 1)]
    return [controller.density(one) for one in (None, *past)]


def test_the_papers_epochs() -> None:
    found = densities(WarmUp(0.001, 0.25, stages=4, stage_steps=2), 11)
    paper = [0.25, 0.0625, 0.015625, 0.004]
    assert found == pytest.approx([k for k in paper for _ in range(2)] + [0.001] * 3, rel=0.02)
    assert found[8:] == [0.001] * 3


def test_no_stage_is_no_warm_up() -> None:
    assert densities(WarmUp(0.5, stages=0), 3) == [0.5] * 3
