"""Messages at the same time share links max-min, whatever their rates do meanwhile."""

from math import inf

import pytest

from harness.virtual.routes import DumbbellRoutes
from harness.virtual.traffic import Flow, Traffic
from profiles.static import Static
from profiles.steps import Steps
from tests.virtual.threads import costs_of

MB = 1_000_000
ONE = Static(rate_mbit=8.0)  # 1 MB/s


def ends(traffic: Traffic, *asked: tuple[float, int, int, int]) -> list[float | None]:
    """Of messages that begin at a time, from a rank to another, of so many bytes."""
    flows: list[Flow] = []
    for start_s, *way in asked:
        while traffic.next_s() <= start_s:
            traffic.advance(traffic.next_s())
        flows.append(traffic.begin(start_s, *way))
    while traffic.next_s() < inf:
        traffic.advance(traffic.next_s())
    return [flow.end_s for flow in flows]


def test_one_message_takes_what_the_costs_of_a_send_say():
    told = {"alpha_s": 0.01, "efficiency": 0.9}
    profile = Static(rate_mbit=8.0, delay_ms=20.0)
    alone = costs_of(profile, 3, **told)
    sizes = [[0, 0, 300_000], [0] * 3, [0] * 3]
    [end_s] = ends(Traffic(costs_of(profile, 3, **told)), (1.0, 0, 2, 300_000))
    assert end_s == pytest.approx(alone.send(1.0, sizes))


def test_two_into_one_downlink_share_it_and_who_is_left_has_all_of_it():
    traffic = Traffic(costs_of(ONE, 3))
    assert ends(traffic, (0.0, 0, 2, MB), (0.0, 1, 2, MB)) == pytest.approx([2.0, 2.0])
    assert ends(traffic, (5.0, 0, 2, MB), (5.5, 1, 2, MB)) == pytest.approx([6.5, 7.0])


def test_what_others_cannot_use_is_left_to_who_can():
    """What the message from 0 to 2, which others slow, does not take, that to 1 has."""
    found = ends(Traffic(costs_of(ONE, 5)), (0, 0, 1, MB), (0, 0, 2, MB), (0, 3, 2, MB),
                 (0, 4, 2, MB))  # fmt: skip
    assert found == pytest.approx([1.5, 3.0, 3.0, 3.0])


def test_a_rate_that_changes_is_seen_meanwhile():
    falls = Steps(((0.0, 8.0), (1.0, 4.0)))
    assert ends(Traffic(costs_of(falls, 2)), (0.0, 0, 1, 2 * MB)) == pytest.approx([3.0])


def test_a_trunk_is_shared_by_what_crosses_it():
    routes = DumbbellRoutes(ONE, 4, 2)
    found = ends(Traffic(costs_of(ONE, 4, routes=routes)), (0, 0, 2, MB), (0, 1, 3, MB),
                 (0, 2, 0, MB), (0, 0, 1, MB))  # fmt: skip
    assert found[:3] == pytest.approx([2.0, 2.0, 1.0])
    assert found[3] == pytest.approx(0.0)  # inside a half nothing is shaped


def test_bytes_are_counted_on_every_link_they_cross():
    costs = costs_of(ONE, 3)
    ends(Traffic(costs), (0, 0, 2, MB), (0, 1, 2, 2 * MB))
    assert costs.carried == {"up0": MB, "up1": 2 * MB, "down2": 3 * MB}
