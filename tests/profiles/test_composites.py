"""Profiles made of profiles: each part is asked for its own node, way and time."""

from typing import Any

import pytest

from profiles.asymmetric import Asymmetric
from profiles.by_node import ByNode
from profiles.contended import Contended
from profiles.fluctuating import Fluctuating
from profiles.loss_bursts import LossBursts
from profiles.noisy import Noisy
from profiles.scaled import Scaled
from profiles.static import Static

FAST = Static(1000, delay_ms=5.0, jitter_ms=1.0, reorder=0.01)
SLOW = Static(20, delay_ms=80.0, loss=0.02)
MOVING = Fluctuating(50, 500, 2, 10, seed=3)


def test_a_straggler_has_its_own_profile_and_the_others_the_default() -> None:
    profile = ByNode(MOVING, {"3": SLOW})
    for node in range(5):
        expected = SLOW if node == 3 else MOVING
        assert profile.link(9.0, node, "down") == expected.link(9.0, node, "down")
    assert profile == ByNode(MOVING, {3: SLOW})
    assert profile.extremes() == (20, 500, 80.0, 0.0, 0.02, 0.0, 0)


def test_each_way_has_its_own_profile() -> None:
    profile = Asymmetric(up=MOVING, down=FAST)
    assert profile.link(9.0, 2, "up") == MOVING.link(9.0, 2, "up")
    assert profile.link(9.0, 2, "down") == FAST.link(9.0, 2, "down")
    assert profile.extremes() == (50, 1000, 5.0, 1.0, 0.0, 0.01, 0)


def test_a_factor_multiplies_rates() -> None:
    profile = Scaled(FAST, factor=0.5)
    assert profile.link(0.0, 0, "up") == (500, 5.0, 1.0, 0.0, 0.01)
    assert profile.extremes() == (500, 500, 5.0, 1.0, 0.0, 0.01, 0)


def test_noise_bears_on_rates_alone() -> None:
    quiet, shared = Noisy(SLOW, deviation=0, hold_s=1), Noisy(MOVING, 0.1, 1, shared=True)
    assert quiet.link(3.0, 1, "up") == SLOW.link(3.0, 1, "up")
    factors = {shared.link(3.0, n, "up")[0] / MOVING.link(3.0, n, "up")[0] for n in range(4)}
    assert max(factors) == pytest.approx(min(factors)) != 1


def test_the_most_flows_of_any_part_compete() -> None:
    four, two = (Contended(FAST, parallel=flows, on_s=60, off_s=10) for flows in (4, 2))
    for profile in (ByNode(two, {0: four}), Asymmetric(up=two, down=four)):
        assert [profile.flows(time_s) for time_s in (0.0, 65.0, 70.0)] == [4, 0, 4]
        assert profile.extremes().flows == 4
    assert LossBursts(Scaled(two), 20, 2, 0.1).flows(0.0) == 2


@pytest.mark.parametrize(("kind", "fields", "said"), [
    (ByNode, {"default": FAST, "nodes": {"3": FAST, 3: SLOW}}, "nodes .* once, got 3 twice"),
    (ByNode, {"default": FAST, "nodes": {3: 7}}, r"nodes\.3 must be a profile .* got 7"),
    (Noisy, {"of": FAST, "deviation": 2, "hold_s": 1}, "deviation must be a number in"),
    (Noisy, {"of": FAST, "deviation": 1, "hold_s": 0}, "hold_s must be"),
    (Noisy, {"of": Static(1e5), "deviation": 1, "hold_s": 1}, "deviation must keep rates in"),
    (Scaled, {"of": FAST, "factor": 2000}, "factor must keep rates in .* got 2000"),
    (Scaled, {"of": Static(0.001), "factor": 0.1}, "factor must keep rates in"),
    (LossBursts, {"of": Static(1, loss=1 - 1e-16), "mean_gap_s": 1, "mean_burst_s": 1, "loss": 0.9},
     "loss must leave some packets"),
])  # fmt: skip
def test_parts_that_do_not_go_together_are_refused(kind: Any, fields: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(**fields)
