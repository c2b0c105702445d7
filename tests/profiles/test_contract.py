"""Laws of every profile: each yaml of conf/profile is tested by being there."""

import random
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from profiles.base import WAYS, Way

CHOICES = {path.stem: path for path in sorted(Path("conf/profile").glob("*.yaml"))}
TIMES_S = [0.1 * tick for tick in range(3000)] + [1e3, 1024.0, 5e3, 86_400.0]


def build(name: str, seed: int = 0) -> Any:
    with initialize_config_dir(str(Path("conf").absolute()), version_base="1.3"):
        return instantiate(compose("config", [f"profile={name}", f"seed={seed}"]).profile)


@pytest.mark.parametrize("name", CHOICES)
def test_it_is_pure_in_any_order(name: str) -> None:
    calls: list[tuple[float, int, Way]]
    calls = [(time_s, node, way) for time_s in TIMES_S for node in (0, 1, 7) for way in WAYS]
    forward, shuffled = build(name), build(name)
    expected = {call: forward.link(*call) for call in calls}
    random.Random("order").shuffle(calls)
    assert all(shuffled.link(*call) == expected[call] for call in calls)


@pytest.mark.parametrize("name", CHOICES)
def test_every_link_is_within_range(name: str) -> None:
    profile = build(name)
    low, high = profile.extremes()[:2]
    assert 0 < low <= high
    for time_s in TIMES_S:
        link = profile.link(time_s, 3, "up")
        assert low <= link.rate_mbit <= high
        assert link.delay_ms >= 0 and link.jitter_ms >= 0 and 0 <= link.loss < 1
        assert profile.flows(time_s) >= 0


@pytest.mark.parametrize("name", CHOICES)
def test_before_the_start_is_the_start(name: str) -> None:
    profile = build(name)
    assert profile.link(-5.0, 2, "up") == profile.link(0.0, 2, "up")
    assert profile.flows(-5.0) == profile.flows(0.0)
