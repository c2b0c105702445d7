"""Learning-rate factors at the places that matter."""

import pytest
from hydra.utils import instantiate

from harness.config.schedules import (
    Constant,
    Cosine,
    InverseSqrt,
    Polynomial,
    Schedule,
    Steps,
    WarmUp,
)

ALL = [Constant(), Steps((0.5, 0.75)), Cosine(), Polynomial(2.0, 0.1), WarmUp(0.1, Cosine()),
       InverseSqrt(40)]  # fmt: skip


def factors(schedule: Schedule, steps: int = 100) -> list[float]:
    return [schedule.factor(step, steps) for step in range(steps)]


@pytest.mark.parametrize("schedule", ALL)
@pytest.mark.parametrize("steps", [1, 3, 2700])
def test_factors_lie_in_the_unit_interval(schedule, steps):
    assert all(0 <= factor <= 1 for factor in factors(schedule, steps))


@pytest.mark.parametrize("schedule", ALL[:4])
def test_starts_at_the_base_rate_and_never_rises(schedule):
    values = factors(schedule)
    assert values[0] == 1 and values == sorted(values, reverse=True)


def test_the_inverse_root_is_highest_behind_its_warm_up_and_no_function_of_the_run():
    """Vaswani et al. (2017), equation 3, over its own maximum."""
    values = factors(InverseSqrt(40), 400)
    for step, value in enumerate(values, start=1):
        highest = 40**-0.5
        assert value == pytest.approx(min(step**-0.5, step * 40**-1.5) / highest)
    assert max(values) == values[39] == 1 and values == factors(InverseSqrt(40), 9000)[:400]
    with pytest.raises(ValueError, match="warmup must be >= 1 step, got 0"):
        InverseSqrt(0)


def test_steps_drop_at_their_milestones():
    values = factors(Steps((0.5, 0.75), gamma=0.1), 2700)
    assert values[1349] == 1 and values[1350] == 0.1
    assert values[2024] == 0.1 and values[2025] == pytest.approx(0.01)
    assert factors(Steps((0.1,)), 30)[2:4] == [1, 0.1]  # 0.1 x 30 is not 3 in floating point


def test_cosine_is_half_way_in_the_middle():
    assert Cosine().factor(50, 100) == pytest.approx(0.5)
    assert Cosine(floor=0.2).factor(100, 100) == pytest.approx(0.2)


def test_polynomial_of_power_one_is_a_line():
    assert Polynomial().factor(25, 100) == 0.75
    assert Polynomial(2.0).factor(50, 100) == 0.25


def test_warm_up_rises_to_what_follows():
    values = factors(WarmUp(0.1, Steps((0.5,)), start=0.5))
    assert values[0] == pytest.approx(0.55) and values[9] == values[49] == 1 and values[50] == 0.1
    assert factors(WarmUp(0.0)) == factors(Constant())


def test_is_chosen_by_yaml():
    schedule = instantiate(
        {
            "_target_": "harness.config.schedules.WarmUp",
            "share": 0.1,
            "then": {"_target_": "harness.config.schedules.Steps", "milestones": [0.5],
                     "gamma": 0.1},
        }
    )  # fmt: skip
    assert schedule.factor(60, 100) == 0.1


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Steps((1.5,)), r"milestones must be in \[0, 1\], got 1.5"),
    (lambda: Steps((0.5,), gamma=-1), r"gamma must be in \[0, 1\], got -1"),
    (lambda: Cosine(2.0), r"floor must be in \[0, 1\], got 2.0"),
    (lambda: Polynomial(0.0), "power must be > 0, got 0.0"),
    (lambda: WarmUp(1.5), r"share must be in \[0, 1\], got 1.5"),
])  # fmt: skip
def test_refuses_with_value_and_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()
