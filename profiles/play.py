"""Profiles played forwards: what a direction of a link goes through, without looking all the time.

A profile may have `play(node, way)`: its conditions there one after the other, each with the time
until which it holds, equal to what `link` says in between; and `series(node, way)`, equal where
conditions are the same at all times. Any other is asked at every look.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from profiles.base import Link, Profile, Way


class Held(NamedTuple):
    """Conditions that hold from those before them until `until_s`."""

    until_s: float
    link: Link


class Played(Protocol):
    """One direction of a link; time goes forwards only."""

    def at(self, time_s: float) -> Held:
        """Conditions at `time_s`, and the time until which they certainly hold."""
        ...


class Asked:
    """Plays a profile that cannot announce its changes: asks it at every look."""

    def __init__(self, profile: Profile, node: int, way: Way) -> None:
        self._asked: tuple[Profile, int, Way] = (profile, node, way)

    def at(self, time_s: float) -> Held:
        profile, node, way = self._asked
        return Held(time_s, profile.link(time_s, node, way))


class Forwards:
    """Plays a profile that lists its changes in order of time."""

    def __init__(self, parts: Iterator[Held]) -> None:
        self._parts, self._now = parts, Held(float("-inf"), Link(1.0))

    def at(self, time_s: float) -> Held:
        while self._now.until_s <= time_s:
            self._now = next(self._parts)
        return self._now


def played(profile: Profile, directions: Iterable[tuple[int, Way]]) -> list[Played]:
    """Directions of nodes' links as `profile` has them, from time 0 on; equal ones are one."""
    known: dict[Hashable, Played] = {}
    found: list[Played] = []
    for node, way in directions:
        parts = play(profile, node, way)
        if parts is None:
            found.append(Asked(profile, node, way))
        else:
            found.append(known.setdefault(series(profile, node, way), Forwards(parts)))
    return found


def play(profile: Profile, node: int, way: Way) -> Iterator[Held] | None:
    """Conditions of one direction in order of time; None if the profile cannot list them."""
    playable: Any = profile
    return playable.play(node, way) if callable(getattr(profile, "play", None)) else None


def series(profile: Profile, node: int, way: Way) -> Hashable:
    """Key of the series that rules a direction; a profile without `series` has one for each."""
    known: Any = profile
    return known.series(node, way) if callable(getattr(profile, "series", None)) else (node, way)
