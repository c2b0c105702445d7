"""COVAP's profiler and the CCR rule: the paper's ratios, and times made by hand."""

from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest

from controllers.ccr_rule import CCRRule
from controllers.covap import COVAP, interval
from tests.controllers.observations import seen


@pytest.mark.parametrize(("ccr", "expected"), [
    (842 / 210, 4),  # VGG-19
    (280 / 135, 3),  # ResNet-101, 2.1
    (520 / 170, 4),  # BERT, 3.1
    (3.5, 4),  # GPT-2
    (0.2, 1),
    (1.0, 1),
    (1.04, 1),
    (1.06, 2),
    (2.0, 2),
    (50.2, 51),
])  # fmt: skip
def test_the_interval_is_the_ratio_rounded_up(ccr: float, expected: int) -> None:
    assert interval(ccr) == expected


def follow(
    controllers: list[COVAP],
    steps: int,
    comm_s: Callable[[int, float], float],
    comp_s: Callable[[int, int], float],
    agree: Callable[[list[float]], float] = fmean,
) -> list[float]:
    """Agreed densities; T_comm by step and density, T_comp by step and worker."""
    densities: list[float] = []
    for step in range(steps):
        chosen = []
        for rank, controller in enumerate(controllers):
            last = None
            if step:
                density = densities[-1]
                last = seen(
                    step - 1,
                    density=density,
                    comm_s=comm_s(step - 1, density),
                    backward_s=comp_s(step - 1, rank),
                )
            chosen.append(controller.density(last))
        densities.append(agree(chosen))
    return densities


def test_it_profiles_one_dense_exchange_after_two_and_keeps_to_the_interval() -> None:
    """What it profiles is the third exchange: the others take ten times as long."""
    densities = follow(
        [COVAP()],
        12,
        lambda step, density: (0.842 if step == 2 else 8.42) * density,
        lambda step, rank: 0.210,
    )
    assert densities[:3] == [1.0, 1.0, 1.0]
    assert densities[3] == pytest.approx(210 / 842)
    assert densities[4:] == [0.25] * 8


def test_several_exchanges_are_profiled_on_request() -> None:
    controller = COVAP(warm_steps=1, profile_steps=3)
    comm_s = [9.0, 1.0, 2.0, 3.0, 9.0, 9.0]
    comp_s = [9.0, 0.5, 0.4, 0.3, 9.0, 9.0]
    densities = follow(
        [controller], 6, lambda step, density: comm_s[step], lambda step, rank: comp_s[step]
    )
    assert densities == [1.0] * 4 + [pytest.approx(0.4 / 2)] + [pytest.approx(1 / 5)]
    state = controller.state()
    assert state == pytest.approx({"interval": 5, "comm_s": 2.0, "comp_s": 0.4, "ccr": 5.0})


def test_workers_take_one_interval_from_the_mean_of_their_computation() -> None:
    """Alone they would take 3, 5 and 4: T_comm is 4, their T_comp 1.6, 0.8 and 1.2, in mean 1.2."""
    alone = [
        follow([COVAP()], 5, lambda step, density: 4 * density, lambda step, rank, s=own: s)[-1]
        for own in (1.6, 0.8, 1.2)
    ]
    assert alone == pytest.approx([1 / 3, 1 / 5, 1 / 4])
    workers = [COVAP() for _ in range(3)]
    densities = follow(
        workers, 9, lambda step, density: 4 * density, lambda step, rank: (1.6, 0.8, 1.2)[rank]
    )
    assert densities[3] == pytest.approx(1.2 / 4)
    assert densities[4:] == pytest.approx([1 / 4] * 5)
    assert {worker.state()["interval"] for worker in workers} == {4}


def test_where_communication_hides_nothing_is_left_out() -> None:
    densities = follow([COVAP()], 9, lambda step, density: 0.1, lambda step, rank: 0.2)
    assert densities == [1.0] * 9


def test_no_computation_gives_the_largest_interval() -> None:
    controller = COVAP(max_interval=30)
    densities = follow([controller], 6, lambda step, density: 0.1, lambda step, rank: 0.0)
    assert densities[-1] == pytest.approx(1 / 30)


def test_a_later_profile_adds_up_the_exchanges_of_an_interval() -> None:
    """None is dense: each takes a share of T_comm, which was 4 and is 9 in the end; T_comp is 1."""
    shares = [0.7, 0.1, 0.1, 0.1]

    def comm_s(step: int, density: float) -> float:
        return (4.0 if step < 10 else 9.0) * (1.0 if density == 1 else shares[step % 4])

    controller = COVAP(period=8)
    densities = follow([controller], 20, comm_s, lambda step, rank: 1.0)
    assert densities[:3] == [1.0] * 3
    assert densities[4:16] == pytest.approx([1 / 4] * 12)  # 8, and a profile of 4
    assert densities[16] == pytest.approx(1 / 9)
    assert densities[17:] == pytest.approx([1 / 9] * 3)
    assert controller.state()["comm_s"] == pytest.approx(9.0)


def rule(comm_s: Callable[[float], float], comp_s: float, steps: int, **fields: Any) -> list[float]:
    """Densities of the CCR rule where an exchange at a density takes `comm_s` of it."""
    controller = CCRRule(**fields)
    densities = [controller.density(None)]
    for step in range(steps):
        last = seen(step, density=densities[-1], comm_s=comm_s(densities[-1]), backward_s=comp_s)
        densities.append(controller.density(last))
    return densities


def test_the_rule_is_the_inverse_ratio_at_once_where_time_is_proportional() -> None:
    assert rule(lambda density: 0.842 * density, 0.210, 3)[1:] == pytest.approx([210 / 842] * 3)


@pytest.mark.parametrize("start", [0.001, 0.1, 1.0])
def test_the_rule_comes_to_rest_where_communication_takes_what_computation_does(start):
    def comm_s(density: float) -> float:
        return 0.02 + 3.0 * density

    last = rule(comm_s, 0.1, 200, start=start)[-1]
    assert comm_s(last) == pytest.approx(0.1, rel=1e-3)


def test_the_rule_stays_within_its_bounds() -> None:
    assert rule(lambda density: 1.0, 0.1, 99, d_min=0.01)[-1] == 0.01  # it never fits
    assert rule(lambda density: 0.0, 0.1, 9, d_max=0.5)[-1] == 0.5
    assert rule(lambda density: 0.0, 0.0, 9)[-1] == 1.0
    assert rule(lambda density: 1.0, 0.0, 9)[-1] == 0.001


def test_the_rule_averages_over_exchanges() -> None:
    controller = CCRRule(weight=0.25)
    controller.density(seen(0, density=0.5, comm_s=1.0, backward_s=1.0))
    density = controller.density(seen(1, density=0.5, comm_s=3.0, backward_s=2.0))
    assert controller.state() == pytest.approx({"comm_s": 3.0, "comp_s": 1.25})
    assert density == pytest.approx(1.25 / 3.0)
