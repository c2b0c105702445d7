"""Players that read a direction's rates in order of time.

A profile whose paths never change may offer `play(node, way)`. It yields the rates that `link`
would return, one after the other. It may also offer `series(node, way)`. This key is equal for
directions with equal conditions at all times. Profiles without `play` are polled.
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
        """Return (until_s, Mbit/s): the rate from `time_s` to until_s. Times must not decrease."""
        ...


class Asked:
    """Player that polls a profile which cannot list its rates in advance."""

    def __init__(self, profile: Profile, node: int, way: Way) -> None:
        self._asked: tuple[Profile, int, Way] = (profile, node, way)
        self.path = Link(1.0)

    def at(self, time_s: float) -> Held:
        """Return (`time_s`, Mbit/s), since the rate is known at this moment only. Update `path`."""
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
    """Return a player for each (node, way) of `directions`, in order, to be read from time 0.

    Directions with equal rates at all times share one player, if the profile lists its rates. Each
    direction of a polled profile gets its own.
    """
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
    """Return the rates of one direction in order of time, or None if the profile has no `play`."""
    playable: Any = profile
    return playable.play(node, way) if callable(getattr(profile, "play", None)) else None


def series(profile: Profile, node: int, way: Way) -> Hashable:
    """Return a key of directions with always equal rates; (node, way) without method `series`."""
    known: Any = profile
    return known.series(node, way) if callable(getattr(profile, "series", None)) else (node, way)
