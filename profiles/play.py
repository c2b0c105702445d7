"""Profiles played forwards: what a direction of a link goes through, without looking all the time.

A profile whose paths do not change may have `play(node, way)`: its rates there one after the other,
equal to what `link` says in between; and `series(node, way)`, equal where conditions are the same
at all times. Any other is asked at every look.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from profiles.base import Link, Profile, Way

Held = tuple[float, float]  # until when, in seconds, and Mbit/s until then


class Rates(NamedTuple):
    """The rates of a direction in order of time, on a path that does not change."""

    path: Link  # but for its rate
    parts: Iterator[Held]


class Played(Protocol):
    """One direction of a link; time goes forwards only."""

    path: Link  # as `at` was asked last, but for its rate

    def at(self, time_s: float) -> Held:
        """The rate at `time_s`, and the time until which conditions certainly hold."""
        ...


class Asked:
    """Plays a profile that cannot announce its changes: asks it at every look."""

    def __init__(self, profile: Profile, node: int, way: Way) -> None:
        self._asked: tuple[Profile, int, Way] = (profile, node, way)
        self.path = Link(1.0)

    def at(self, time_s: float) -> Held:
        profile, node, way = self._asked
        self.path = profile.link(time_s, node, way)
        return time_s, self.path.rate_mbit


class Forwards:
    """Plays a profile that lists its rates in order of time."""

    def __init__(self, rates: Rates) -> None:
        self.path, self._parts = rates
        self._now: Held = (float("-inf"), self.path.rate_mbit)

    def at(self, time_s: float) -> Held:
        now = self._now
        while now[0] <= time_s:
            self._now = now = next(self._parts)
        return now


def played(profile: Profile, directions: Iterable[tuple[int, Way]]) -> list[Played]:
    """Directions of nodes' links as `profile` has them, from time 0 on; equal ones are one."""
    known: dict[Hashable, Played] = {}
    found: list[Played] = []
    for node, way in directions:
        rates = play(profile, node, way)
        if rates is None:
            found.append(Asked(profile, node, way))
        else:
            found.append(known.setdefault(series(profile, node, way), Forwards(rates)))
    return found


def play(profile: Profile, node: int, way: Way) -> Rates | None:
    """Rates of one direction in order of time; None if the profile cannot list them."""
    playable: Any = profile
    return playable.play(node, way) if callable(getattr(profile, "play", None)) else None


def series(profile: Profile, node: int, way: Way) -> Hashable:
    """Key of the series that rules a direction; a profile without `series` has one for each."""
    known: Any = profile
    return known.series(node, way) if callable(getattr(profile, "series", None)) else (node, way)
