"""Random values that each hold for a while, generated on demand and then kept.

A longer series begins with the shorter one, so a value depends only on seed, name and time.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple, Protocol

MOST_SERIES = 1024  # series that are cached; to use more of them, play them forwards
FIRST_HORIZON_S = 1024.0  # a series is made this long, and doubled when time passes its end


class Drawn(Protocol):
    """A generator of a random series. Equal objects draw equal series."""

    def __hash__(self) -> int: ...

    @property
    def seed(self) -> int: ...

    def draws(self, random: Random) -> Iterator[tuple[float, float]]:
        """Yield pairs of a length in seconds and a value, without end."""
        ...


class Segments(NamedTuple):
    """A series as lists: `values[i]` holds until `ends_s[i]`."""

    ends_s: Sequence[float]
    values: Sequence[float]


def value_at(drawn: Drawn, name: str, time_s: float) -> float:
    """Return the value at `time_s` >= 0 of the series that `name` and the seed determine."""
    horizon_s = FIRST_HORIZON_S
    while horizon_s <= time_s:
        horizon_s *= 2
    ends_s, values = _segments(drawn, name, horizon_s)
    return values[bisect_right(ends_s, time_s)]


@lru_cache(maxsize=MOST_SERIES)
def _segments(drawn: Drawn, name: str, horizon_s: float) -> Segments:
    ends_s, values = array("d"), array("d")
    for end_s, value in drawn_parts(drawn, name):
        ends_s.append(end_s)
        values.append(value)
        if end_s > horizon_s:
            return Segments(ends_s, values)
    raise AssertionError(f"{drawn} draws no more after {ends_s[-1]} s")


def drawn_parts(drawn: Drawn, name: str) -> Iterator[tuple[float, float]]:
    """Yield the end time (s) and value of each part of the series `name`, from its beginning."""
    random = Random(f"{drawn.seed}/{name}")  # text is hashed by SHA-512: equal on every Python
    end_s = 0.0
    for length_s, value in drawn.draws(random):
        end_s += length_s
        yield end_s, value
