"""Replay of a recorded network: rows of a CSV file, each holding until the next.

Header `time_s,rate_mbit[,delay_ms][,jitter_ms][,loss][,reorder]`; lines before it may be comments
that start with `#`. Every other line is a row; times start at 0 and increase.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from profiles.base import Extremes, Link, Way, widest
from profiles.limits import MOST_S, check_between, check_choice, check_mbit, check_path
from profiles.recordings import number, read

COLUMNS = ("time_s", *Link._fields)


@dataclass(frozen=True)
class Trace:
    """Replays a recorded network, both ways alike, and all nodes alike but for `stagger_s`."""

    path: str  # absolute, from the working directory, or the name of one in profiles/traces
    end: str = "loop"  # loop: start over; hold: keep the last row
    length_s: float | None = None  # of the loop; None: the last row holds as long as the one before
    stagger_s: float = 0.0  # node n reads the trace n * stagger_s further on
    digest: str = field(init=False, repr=False)  # of the file: traces are equal where contents are
    _starts_s: list[float] = field(init=False, repr=False, compare=False)
    _links: list[Link] = field(init=False, repr=False, compare=False)
    _loop_s: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice(("loop", "hold"), end=self.end)
        check_between(0, MOST_S, stagger_s=self.stagger_s)
        if self.length_s is not None:
            check_between(0, MOST_S, length_s=self.length_s)
        recording = read(self.path)
        starts_s, links = self._parsed(recording.lines)
        object.__setattr__(self, "digest", recording.digest)
        object.__setattr__(self, "_starts_s", starts_s)
        object.__setattr__(self, "_links", links)
        object.__setattr__(self, "_loop_s", self._length_s(starts_s))

    def _parsed(self, lines: list[str]) -> tuple[list[float], list[Link]]:
        return parse(self.path, lines)

    def _length_s(self, starts_s: list[float]) -> float:
        """Seconds of one loop of the trace; a single row holds forever, so any length will do."""
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
        return self._links[bisect_right(self._starts_s, at_s) - 1]

    def flows(self, time_s: float) -> int:
        return 0

    def extremes(self) -> Extremes:
        return widest(Extremes(link.rate_mbit, *link) for link in set(self._links))


def parse(path: str, lines: list[str]) -> tuple[list[float], list[Link]]:
    """When each row begins and what it says; ValueError names file, line, column and value."""
    top = next((place for place, line in enumerate(lines) if line[:1] != "#"), len(lines))
    columns = _columns(f"{path}:{top + 1}", lines[top] if top < len(lines) else "")
    starts_s: list[float] = []
    links = []
    for place, line in enumerate(lines[top + 1 :], start=top + 2):
        where = f"{path}:{place}"
        time_s, link = _row(where, columns, line)
        if not starts_s and time_s != 0:
            raise ValueError(f"{where}: time_s must be 0 in the first row, got {time_s}")
        if starts_s and time_s <= starts_s[-1]:
            raise ValueError(
                f"{where}: time_s must be above {starts_s[-1]} (the row before), got {time_s}"
            )
        starts_s.append(time_s)
        links.append(link)
    if not links:
        raise ValueError(f"{path}:{len(lines)}: must be followed by at least one row, got none")
    return starts_s, links


def _columns(where: str, line: str) -> list[str]:
    columns = [column.strip() for column in line.split(",")]
    known = set(columns) <= set(COLUMNS) and len(set(columns)) == len(columns)
    if columns[:2] != list(COLUMNS[:2]) or not known:
        optional = "".join(f"[,{column}]" for column in COLUMNS[2:])
        raise ValueError(f"{where}: header must be time_s,rate_mbit{optional}, got {line!r}")
    return columns


def _row(where: str, columns: list[str], line: str) -> tuple[float, Link]:
    texts = line.split(",")
    if len(texts) != len(columns):
        raise ValueError(f"{where}: must have {len(columns)} values, as its header, got {line!r}")
    values = {
        column: number(text.strip(), f"{where}: {column}")
        for column, text in zip(columns, texts, strict=True)
    }
    time_s = values.pop("time_s")
    link = Link(**values)
    try:
        check_between(0, MOST_S, time_s=time_s)
        check_mbit(rate_mbit=link.rate_mbit)
        check_path(*link[1:])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return time_s, link
