"""Laws of all profiles: links are pure functions of time, node and direction."""

import pickle
import random
from collections.abc import Sequence
from typing import Any

from harness.contract.laws import Law, Make, demand
from profiles.base import WAYS, Link, Way
from profiles.play import played

NODES = (0, 1, 7)
TIMES_S = [0.25 * tick for tick in range(1200)] + [1e3, 1024.0, 5e3, 50_000.0]
OTHERS = ("seed=5", "network_seed=0")  # the run's seed must not matter; the network's may


def nodes(profile: Any) -> Sequence[int]:
    """Return the nodes to test: one per listed rate, or NODES if any node has a link."""
    rates = getattr(profile, "rate_mbit", None)
    return range(len(rates)) if isinstance(rates, list | tuple) else NODES


def calls(profile: Any) -> list[tuple[float, int, Way]]:
    """Return arguments of `profile.link` for all test times, nodes and directions."""
    return [(time_s, node, way) for time_s in TIMES_S for node in nodes(profile) for way in WAYS]


def is_pure(make: Make) -> None:
    """Raise LawBroken unless two profiles of one network seed give equal links in any order."""
    forward, shuffled = make(), make(*OTHERS)
    asked = calls(forward)
    expected = {call: forward.link(*call) for call in asked}
    flows = [forward.flows(time_s) for time_s in TIMES_S]
    for call in random.Random("order").sample(asked, len(asked)):
        again = shuffled.link(*call)
        demand(again == expected[call], f"link{call} was {expected[call]}, and then {again}")
    backwards = [shuffled.flows(time_s) for time_s in reversed(TIMES_S)]
    demand(backwards == flows[::-1], "flows differ when they are asked backwards")


def plays_the_same(make: Make) -> None:
    """Raise LawBroken unless playing links forward, as networks do, equals single calls."""
    profile = make()
    directions = [(node, way) for node in nodes(profile) for way in WAYS]
    going = played(profile, directions)
    for time_s in TIMES_S:
        for (node, way), each in zip(directions, going, strict=True):
            until_s, rate_mbit = each.at(time_s)
            link, looked = each.path._replace(rate_mbit=rate_mbit), profile.link(time_s, node, way)
            demand(link == looked, f"at {time_s} s {link} was played for {looked}")
            demand(until_s >= time_s, f"at {time_s} s a state ended at {until_s} s")


def keeps_its_extremes(make: Make) -> None:
    """Raise LawBroken if a link or a number of flows leaves the bounds of `extremes()`."""
    profile = make()
    most = profile.extremes()
    demand(0 < most.lowest_mbit <= most.highest_mbit, f"extremes are {most}")
    for link in {profile.link(*call) for call in calls(profile)}:
        demand(isinstance(link, Link), f"a link is {link!r}, and no profiles.base.Link")
        within = (
            most.lowest_mbit <= link.rate_mbit <= most.highest_mbit
            and 0 <= link.jitter_ms <= link.delay_ms <= most.delay_ms
            and link.jitter_ms <= most.jitter_ms
            and 0 <= link.loss <= most.loss < 1
            and 0 <= link.reorder <= most.reorder < 1
        )
        demand(within, f"{link} is beyond {most}")
    flows = [profile.flows(time_s) for time_s in TIMES_S]
    demand(all(0 <= count <= most.flows for count in flows), f"flows are up to {max(flows)}")


def starts_before_zero(make: Make) -> None:
    """Raise LawBroken unless negative times equal time 0."""
    profile, node = make(), nodes(make())[-1]
    for way in WAYS:
        before, start = profile.link(-5.0, node, way), profile.link(0.0, node, way)
        demand(before == start, f"the link {way} is {before} before the start, then {start}")
    demand(profile.flows(-5.0) == profile.flows(0.0), "flows differ before the start")


def is_a_key(make: Make) -> None:
    """Raise LawBroken unless equal profiles are one dict key and a pickled copy is equal."""
    profile = make()
    copy = pickle.loads(pickle.dumps(profile))
    demand({profile: 1}.get(copy) == {copy: 1}.get(make()) == 1, "equal profiles are two keys")
    asked = calls(profile)[::50]
    same = [copy.link(*call) for call in asked] == [profile.link(*call) for call in asked]
    demand(same, "a copy by pickle has other links")


LAWS = (
    Law("it is pure, in any order", is_pure),
    Law("played forwards it is the same", plays_the_same),
    Law("no link leaves the extremes", keeps_its_extremes),
    Law("before the start is the start", starts_before_zero),
    Law("equal profiles are one key, and survive a pickle", is_a_key),
)
