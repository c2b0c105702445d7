"""Profiles played forwards: the sequence of a direction's rates, without polling at each time.

A profile with constant paths may offer `play(node, way)`, which yields the rates one after the
other, equal to those of `link`. It may also offer `series(node, way)`, a key that is equal where
conditions are equal at all times. Other profiles are polled.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from profiles.base import Link, Profile, Way

Held = tuple[float, float]  # until when, in seconds, and Mbit/s until then


class Rates(NamedTuple):
    """Rates of one direction in order of time, on a path that does not change."""

    path: Link  # but for its rate
    parts: Iterator[Held]


class Played(Protocol):
    """One direction of a link, played forwards only."""

    path: Link  # as `at` was asked last, but for its rate

    def at(self, time_s: float) -> Held:
        """Return the rate at `time_s`, and the time until which conditions certainly hold."""
        ...


class Asked:
    """Player of a profile that cannot announce its changes, which it polls at every time."""

    def __init__(self, profile: Profile, node: int, way: Way) -> None:
        self._asked: tuple[Profile, int, Way] = (profile, node, way)
        self.path = Link(1.0)

    def at(self, time_s: float) -> Held:
        profile, node, way = self._asked
        self.path = profile.link(time_s, node, way)
        return time_s, self.path.rate_mbit


class Forwards:
    """Player of a profile that lists its rates in order of time."""

    def __init__(self, rates: Rates) -> None:
        self.path, self._parts = rates
        self._now: Held = (float("-inf"), self.path.rate_mbit)

    def at(self, time_s: float) -> Held:
        now = self._now
        while now[0] <= time_s:
            self._now = now = next(self._parts)
        return now


def played(profile: Profile, directions: Iterable[tuple[int, Way]]) -> list[Played]:
    """Return a player from time 0 for each direction. Equal directions share one player."""
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
    """Return the rates of one direction in order of time, or None if it cannot list them."""
    playable: Any = profile
    return playable.play(node, way) if callable(getattr(profile, "play", None)) else None


def series(profile: Profile, node: int, way: Way) -> Hashable:
    """Return the key of the series of a direction. Without `series`, each direction has its own."""
    known: Any = profile
    return known.series(node, way) if callable(getattr(profile, "series", None)) else (node, way)
