"""Laws of every profile: each choice is tested by being there."""

import pickle
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from harness.config import sweep
from harness.config.search_path import choices
from harness.config.settings import Settings
from profiles.base import WAYS, Link, Way
from profiles.play import played

CHOICES = list(choices("profile"))
NODES = (0, 1, 7)
TIMES_S = [0.25 * tick for tick in range(1200)] + [1e3, 1024.0, 5e3, 50_000.0]


@cache
def settings(*overrides: str) -> Settings:
    with sweep.hydra():
        return sweep.plain_settings(sweep.load(overrides))


def build(name: str, *overrides: str) -> Any:
    return settings(f"profile={name}", *overrides).build("profile")


def nodes(profile: Any) -> Sequence[int]:
    """Some of the nodes that it has a link for: of a list of rates one each, else any."""
    rates = getattr(profile, "rate_mbit", None)
    return range(len(rates)) if isinstance(rates, list | tuple) else NODES


def calls(profile: Any) -> list[tuple[float, int, Way]]:
    return [(time_s, node, way) for time_s in TIMES_S for node in nodes(profile) for way in WAYS]


@pytest.mark.parametrize("name", CHOICES)
def test_it_is_pure_in_any_order(name: str) -> None:
    forward, shuffled = build(name), build(name, "seed=5", "network_seed=0")
    asked = calls(forward)
    expected = {call: forward.link(*call) for call in asked}
    flows = [forward.flows(time_s) for time_s in TIMES_S]
    order = random.Random("order").sample(asked, len(asked))
    assert all(shuffled.link(*call) == expected[call] for call in order)
    assert [shuffled.flows(time_s) for time_s in reversed(TIMES_S)] == flows[::-1]


@pytest.mark.parametrize("name", CHOICES)
def test_played_forwards_it_is_the_same(name: str) -> None:
    profile = build(name)
    directions = [(node, way) for node in nodes(profile) for way in WAYS]
    going = played(profile, directions)
    for time_s in TIMES_S:
        for (node, way), each in zip(directions, going, strict=True):
            until_s, rate_mbit = each.at(time_s)
            assert each.path._replace(rate_mbit=rate_mbit) == profile.link(time_s, node, way)
            assert until_s >= time_s


@pytest.mark.parametrize("name", CHOICES)
def test_no_link_leaves_the_extremes(name: str) -> None:
    profile = build(name)
    most = profile.extremes()
    assert 0 < most.lowest_mbit <= most.highest_mbit
    for link in {profile.link(*call) for call in calls(profile)}:
        assert isinstance(link, Link)
        assert most.lowest_mbit <= link.rate_mbit <= most.highest_mbit
        assert 0 <= link.jitter_ms <= link.delay_ms <= most.delay_ms
        assert link.jitter_ms <= most.jitter_ms
        assert 0 <= link.loss <= most.loss < 1
        assert 0 <= link.reorder <= most.reorder < 1
    assert all(0 <= profile.flows(time_s) <= most.flows for time_s in TIMES_S)


@pytest.mark.parametrize("name", CHOICES)
def test_before_the_start_is_the_start(name: str) -> None:
    profile = build(name)
    for way in WAYS:
        assert profile.link(-5.0, 2, way) == profile.link(0.0, 2, way)
    assert profile.flows(-5.0) == profile.flows(0.0)


@pytest.mark.parametrize("name", CHOICES)
def test_equal_profiles_are_one_key_and_survive_a_pickle(name: str) -> None:
    profile = build(name)
    copy = pickle.loads(pickle.dumps(profile))
    assert {profile: "found"}[copy] == {copy: "found"}[build(name)] == "found"
    assert [copy.link(*call) for call in calls(profile)[::50]] == [
        profile.link(*call) for call in calls(profile)[::50]
    ]
