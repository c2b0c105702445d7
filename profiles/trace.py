"""Replay of a recorded network: rows of a CSV file, each of which holds until the next.

The header is `time_s,rate_mbit[,delay_ms][,jitter_ms][,loss][,reorder]`. Lines before it that start
with `#` are comments. Times start at 0 and increase.
"""

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import compress
from operator import le, lt
from typing import NamedTuple

from profiles.base import Extremes, Link, Way
from profiles.limits import (
    MOST_DELAY_MS,
    MOST_MBIT,
    MOST_S,
    check_between,
    check_choice,
    check_mbit,
    check_path,
)
from profiles.recordings import Recording, number, read
from profiles.tables import csv_table, plain_numbers

COLUMNS = ("time_s", *Link._fields)


class Rows(NamedTuple):
    """Rows of a recording by column. A million rows take 8 MB a column."""

    lines: array  # numbers in the file
    times_s: array  # seconds since the first row
    links: dict[str, array]  # by field of Link

    @classmethod
    def none(cls, names: list[str]) -> "Rows":
        """Return an empty table for links with these fields."""
        return cls(array("L"), array("d"), {name: array("d") for name in names})


@dataclass(frozen=True)
class Trace:
    """Profile that replays a recording, equal in both ways. `stagger_s` shifts it by node."""

    path: str  # absolute, from the working directory, or the name of one in profiles/traces
    end: str = "loop"  # loop: start over; hold: keep the last row
    length_s: float | None = None  # of the loop; None: the last row holds as long as the one before
    stagger_s: float = 0.0  # node n reads the trace n * stagger_s further on
    digest: str = field(init=False, repr=False)  # of the file: traces are equal where contents are
    notes: tuple[str, ...] = field(init=False, repr=False, compare=False)  # changes made to it
    _starts_s: array = field(init=False, repr=False, compare=False)
    _links: dict[str, array] = field(init=False, repr=False, compare=False)
    _loop_s: float = field(init=False, repr=False, compare=False)
    _extremes: Extremes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice(("loop", "hold"), end=self.end)
        check_between(0, MOST_S, stagger_s=self.stagger_s)
        if self.length_s is not None:
            check_between(0, MOST_S, length_s=self.length_s)
        recording = read(self.path)
        rows, notes = self._read(recording)
        most = {name: max(values) for name, values in rows.links.items()}
        extremes = Extremes(min(rows.links["rate_mbit"]), most.pop("rate_mbit"), **most)
        object.__setattr__(self, "digest", recording.digest)
        object.__setattr__(self, "notes", notes)
        object.__setattr__(self, "_starts_s", rows.times_s)
        object.__setattr__(self, "_links", rows.links)
        object.__setattr__(self, "_loop_s", self._length_s(rows.times_s))
        object.__setattr__(self, "_extremes", extremes)

    def _read(self, recording: Recording) -> tuple[Rows, tuple[str, ...]]:
        """Return rows, and notes on changes to them; ValueError with file, line and value."""
        table = csv_table(recording, ",")
        where, columns = f"{self.path}:{table.top}", table.header
        known = set(columns) <= set(COLUMNS) and len(set(columns)) == len(columns)
        if columns[:2] != list(COLUMNS[:2]) or not known:
            optional = "".join(f"[,{column}]" for column in COLUMNS[2:])
            got = ",".join(columns)
            raise ValueError(
                f"{where}: header must be time_s,rate_mbit{optional}, got {got!r}"
                "; profile=columns reads tables with other columns"
            )
        rows = Rows.none(columns[1:])
        for lines, texts in table.chunks():
            rows.lines.extend(lines)
            for name, values in [("time_s", rows.times_s), *rows.links.items()]:
                chunk = plain_numbers(texts[name])
                if chunk is None:
                    cells = zip(lines, texts[name], strict=True)
                    wheres = ((f"{self.path}:{line}: {name}", text) for line, text in cells)
                    chunk = array("d", (number(text.strip(), where) for where, text in wheres))
                values.extend(chunk)
        if not rows.lines:
            raise ValueError(f"{where}: must be followed by at least one row, got none")
        self._check_times(rows)
        self._check_links(rows)
        times_s = rows.times_s
        if times_s[0] != 0:
            line = rows.lines[0]
            raise ValueError(
                f"{self.path}:{line}: time_s must be 0 in the first row, got {times_s[0]}"
            )
        if (place := first_not_later(times_s)) is not None:
            raise ValueError(
                f"{self.path}:{rows.lines[place]}: time_s must be above {times_s[place - 1]} "
                f"(the row before), got {times_s[place]}"
            )
        return rows, ()

    def _check_times(self, rows: Rows) -> None:
        """Raise ValueError, naming the line, for the first time that is not in [0, 1e9] s."""
        if 0 <= min(rows.times_s) and max(rows.times_s) <= MOST_S:
            return
        for line, time_s in zip(rows.lines, rows.times_s, strict=True):
            check_between(0, MOST_S, **{f"{self.path}:{line}: time_s": time_s})

    def _check_links(self, rows: Rows) -> None:
        """Raise ValueError for the first row that no link can play."""
        if _playable(rows.links):
            return
        for line, *values in zip(rows.lines, *rows.links.values(), strict=True):
            link = Link(**dict(zip(rows.links, values, strict=True)))
            try:
                check_mbit(rate_mbit=link.rate_mbit)
                check_path(*link[1:])
            except ValueError as error:
                name = str(error).partition(" ")[0]
                hint = self._hint(name, getattr(link, name))
                raise ValueError(f"{self.path}:{line}: {error}{hint}") from error

    def _hint(self, name: str, value: float) -> str:
        """Say what to write instead of a row's refused `value` of a field of Link."""
        return "; profile=columns reads recordings without a reading in some rows" * (value < 0)

    def _length_s(self, starts_s: array) -> float:
        """Return the seconds of one loop of the trace. `starts_s` are the times of its rows.

        A single row holds forever, so any length fits. Raise ValueError for a `length_s` that is
        not after the last row, or that is set without a loop.
        """
        last_s = starts_s[-1]
        if self.length_s is None:
            return 2 * last_s - starts_s[-2] if last_s else 1.0
        if self.end == "hold":
            raise ValueError(f"length_s must be null where end is hold, got {self.length_s}")
        if self.length_s <= last_s:
            raise ValueError(
                f"length_s must be above {last_s}, the last time_s of {self.path}, "
                f"got {self.length_s}"
            )
        return self.length_s

    def link(self, time_s: float, node: int, way: Way) -> Link:
        at_s = max(0.0, time_s) + node * self.stagger_s
        if self.end == "loop":
            at_s %= self._loop_s
        place = bisect_right(self._starts_s, at_s) - 1
        return Link(**{name: values[place] for name, values in self._links.items()})

    def flows(self, time_s: float) -> int:
        return 0

    def extremes(self) -> Extremes:
        return self._extremes


def first_not_later(times_s: array) -> int | None:
    """Return the index of the first row whose time is not above the previous row's."""
    if all(map(lt, times_s, times_s[1:])):
        return None
    return next(place for place in range(1, len(times_s)) if times_s[place] <= times_s[place - 1])


def _playable(links: dict[str, array]) -> bool:
    """Return True if all links are within their limits, checked by whole columns."""
    for name, values in links.items():
        least, most = min(values), max(values)
        if name == "rate_mbit":
            good = 0 < least and most <= MOST_MBIT
        elif name in ("loss", "reorder"):
            good = 0 <= least and most < 1
        else:
            good = 0 <= least and most <= MOST_DELAY_MS
        if not good:
            return False
    delays = links.get("delay_ms") or array("d", bytes(8 * len(links["rate_mbit"])))
    jitters, reorders = links.get("jitter_ms", ()), links.get("reorder", ())
    return all(map(le, jitters, delays)) and all(compress(delays, reorders))
