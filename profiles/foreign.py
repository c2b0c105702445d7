"""Recordings in other formats: Pensieve's cooked traces, and tables with named columns.

Both are converted to rows as in `profiles.trace`. Times begin at 0, and no rate is below a floor,
because a link that stops forever would never end a run.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress, count, pairwise, repeat
from math import isnan, nan
from operator import gt, mul, ne, sub
from statistics import fmean, median_low
from typing import Any, NamedTuple

from profiles.limits import MOST_MBIT, check_between, check_choice, check_lasting, check_mbit
from profiles.recordings import Recording, floor_notes, number, share
from profiles.tables import DELIMITERS, Chunk, Table, csv_table, plain_numbers, word_table
from profiles.times import Times, check_format
from profiles.trace import COLUMNS, Rows, Trace, first_not_later

LEAST_UNIT, MOST_UNIT = 1e-12, 1e12
NO_READING = ("", "-", "--", "?", "na", "n/a", "nan", "none", "null")  # in lower case
LONGEST_STEP = 5  # times the usual step between rows; a longer one is a hole
SAMPLED = 10_000  # steps, of which the usual one is the median
HOUR_S = 3600


class Source(NamedTuple):
    """An open recording, and the columns that hold its readings."""

    table: Table
    columns: dict[str, str]  # of the table, by field of Link
    times: Times | None  # None: the table has no times
    spacing_s: float = 1.0  # between rows without times


@dataclass(frozen=True)
class Recorded(Trace, ABC):
    """Base of recordings in which rates may be 0, readings may be missing and times may repeat.

    A negative value or a text of NO_READING is a missing reading. `no_reading` decides what the
    link does then: it holds the previous reading, or has an outage at `floor_mbit`. Columns other
    than the rate always hold. Rows before the first reading are dropped.
    """

    floor_mbit: float = 0.1  # least rate
    no_reading: str | None = None  # hold or outage; None: refused
    same_time: str | None = None  # first, last or mean of rows with one time; None: refused

    def __post_init__(self) -> None:
        check_mbit(floor_mbit=self.floor_mbit)
        if self.no_reading is not None:
            check_choice(("hold", "outage"), no_reading=self.no_reading)
        if self.same_time is not None:
            check_choice(("first", "last", "mean"), same_time=self.same_time)
        super().__post_init__()

    @abstractmethod
    def _open(self, recording: Recording) -> Source:
        """Open the table in `recording`. Raise ValueError if its header lacks a column."""

    def _chunks(self, table: Table) -> Iterator[Chunk]:
        """Yield the rows that count, in chunks."""
        return table.chunks()

    def _unit(self, name: str) -> float:
        """Return the factor that converts readings to the unit of the field `name` of Link."""
        return 1.0

    def _read(self, recording: Recording) -> tuple[Rows, tuple[str, ...]]:
        source = self._open(recording)
        rows = self._rows(source)
        if not rows.lines:
            raise ValueError(f"{self.path}: must have at least one row that counts, got none")
        total = len(rows.lines)
        rows, missing = self._filled(rows)
        rates = rows.links["rate_mbit"]
        notes = floor_notes(self.path, rates, self.floor_mbit)
        if notes:
            rows.links["rate_mbit"] = array("d", map(max, rates, repeat(self.floor_mbit)))
        self._check_links(rows)
        rows = self._in_order(rows, source)
        self._check_times(rows)
        rows, holes = self._without_holes(rows, source)
        if source.times is None:
            notes += (f"{self.path}: has no times: a row every {source.spacing_s:g} s",)
        instead = f"(no_reading={self.no_reading})"
        if missing:
            said = f"{share(missing, total)} of the samples had no reading {instead}"
            notes += (f"{self.path}: {said}",)
        if holes:
            notes += (f"{self.path}: {holes} hole{'s' * (holes > 1)} between rows {instead}",)
        return rows, notes

    def _rows(self, source: Source) -> Rows:
        """Read all rows that count. Missing readings are NaN."""
        rows = Rows.none(list(source.columns))
        for lines, texts in self._chunks(source.table):
            rows.lines.extend(lines)
            if source.times:
                source.times.extend(texts[source.times.column], lines)
            for name, column in source.columns.items():
                readings, unit = self._readings(texts[column], lines, column), self._unit(name)
                rows.links[name].extend(readings if unit == 1 else map(mul, readings, repeat(unit)))
        if source.times and rows.lines:
            return rows._replace(times_s=source.times.seconds())
        times_s = map(mul, range(len(rows.lines)), repeat(source.spacing_s))
        return rows._replace(times_s=array("d", times_s))

    def _readings(self, texts: Sequence[str], lines: Sequence[int], column: str) -> array:
        """Parse readings of one column; ValueError for a text that must be a number and is not."""
        values = plain_numbers(texts)
        if values is not None and min(values) >= 0:
            return values
        values = array("d")
        for text, line in zip(texts, lines, strict=True):
            where, text = f"{self.path}:{line}: {column}", text.strip()
            value = nan if text.lower() in NO_READING else number(text, where)
            if not value >= 0:
                if self.no_reading is None:
                    raise ValueError(
                        f"{where} must be a number >= 0, got {text!r}; if it means no reading, "
                        "write no_reading=hold (the one before holds) or no_reading=outage"
                    )
                value = nan
            values.append(value)
        return values

    def _filled(self, rows: Rows) -> tuple[Rows, int]:
        """Fill gaps in `rows` with the reading before. Return the rows, and how many had a gap.

        With `no_reading` "outage", a missing rate becomes `floor_mbit`. Rows before the first
        complete one are dropped. Raise ValueError if no row is left.
        """
        gaps = zip(*(map(isnan, column) for column in rows.links.values()), strict=True)
        missing = sum(map(any, gaps))
        if not missing:
            return rows, 0
        links, first = {}, 0
        for name, values in rows.links.items():
            if name == "rate_mbit" and self.no_reading == "outage":
                values = array("d", (self.floor_mbit if isnan(v) else v for v in values))
            links[name] = array("d", accumulate(values, lambda held, v: held if isnan(v) else v))
            first = max(first, sum(map(isnan, links[name])))  # only the first rows have none
        if first == len(rows.lines):
            raise ValueError(f"{self.path}: must have a reading in at least one row, got none")
        begin_s = rows.times_s[first]
        return Rows(
            rows.lines[first:],
            array("d", map(sub, rows.times_s[first:], repeat(begin_s))),
            {name: values[first:] for name, values in links.items()},
        ), missing

    def _in_order(self, rows: Rows, source: Source) -> Rows:
        """Return rows with increasing times. Raise ValueError for the first time that goes back."""
        if self.same_time is not None and source.times:
            rows = _one_a_time(rows, self.same_time)
        if source.times is None or (place := first_not_later(rows.times_s)) is None:
            return rows
        cells = [
            source.table.cell(rows.lines[at], source.times.column) for at in (place - 1, place)
        ]
        step_s = rows.times_s[place] - rows.times_s[place - 1]
        if step_s == 0:
            instead = "same_time=first, last or mean makes one row of those with one time"
        elif source.times.are_local and -HOUR_S <= step_s < -0.9 * HOUR_S:
            instead = "where a clock was set back, times must have a zone, such as +01:00"
        else:
            instead = "sort the rows, or pick one of several runs with profile=columns and where"
        raise ValueError(
            f"{self.path}:{rows.lines[place]}: its time must be above {cells[0]} (the row before), "
            f"got {cells[1]}; {instead}"
        )

    def _without_holes(self, rows: Rows, source: Source) -> tuple[Rows, int]:
        """Fill holes between evenly spaced rows as `no_reading` says, and count them."""
        return rows, 0


@dataclass(frozen=True)
class Cooked(Recorded):
    """Recording in Pensieve's format (Mao et al., 2017): each line has seconds and Mbit/s."""

    def _open(self, recording: Recording) -> Source:
        table = word_table(recording, ["seconds", "Mbit/s"])
        return Source(table, {"rate_mbit": "Mbit/s"}, Times(self.path, "seconds"))


@dataclass(frozen=True)
class Columns(Recorded):
    """Recording as a CSV file with a header, such as Lumos5G's.

    `columns` maps `rate_mbit` and optionally `time_s`, `delay_ms`, `jitter_ms`, `loss` and
    `reorder` to columns of the file. `units` gives a factor for each. Only rows that match `where`
    count. Rows without times are `spacing_s` apart. If most rows are evenly spaced, a gap of more
    than LONGEST_STEP steps is a hole: `no_reading` fills it, and without it ValueError is raised.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    time_format: str | None = None  # of strptime; None: seconds, ISO 8601 or times of day
    spacing_s: float | None = None  # between rows without times; None: a second

    def __post_init__(self) -> None:
        for key in ("columns", "units", "where"):
            if not hasattr(getattr(self, key), "items"):
                raise ValueError(f"{key} must be a mapping, got {getattr(self, key)!r}")
        named = {name: column for name, column in self.columns.items() if column is not None}
        object.__setattr__(self, "columns", _Frozen(named))
        object.__setattr__(self, "units", _Frozen(self.units))
        object.__setattr__(self, "where", _Frozen(self.where))
        if unknown := (set(self.columns) | set(self.units)) - set(COLUMNS):
            known = ", ".join(COLUMNS)
            raise ValueError(f"columns, units must be of {known}, got {sorted(unknown)}")
        if "rate_mbit" not in self.columns:
            raise ValueError("columns must say which is rate_mbit, got none")
        for name, unit in self.units.items():
            check_between(LEAST_UNIT, MOST_UNIT, **{f"units.{name}": unit})
            if name not in self.columns:
                raise ValueError(f"units.{name} must be of a column, and columns has no {name}")
        if self.time_format is not None:
            check_format(self.time_format)
        if self.spacing_s is not None:
            check_lasting(spacing_s=self.spacing_s)
        super().__post_init__()

    def _unit(self, name: str) -> float:
        return self.units.get(name, 1.0)

    def _open(self, recording: Recording) -> Source:
        table = csv_table(recording, DELIMITERS)
        columns = {name: str(column) for name, column in self.columns.items()}
        time = columns.pop("time_s", None)
        if self.spacing_s is not None and time is not None:
            if time in table.header:
                raise ValueError(
                    f"spacing_s must be null where columns.time_s is a column, got {self.spacing_s}"
                    "; write columns.time_s=null to leave times unread"
                )
            time = None
        if time not in table.header and set(table.header) <= {*columns.values(), *self.where}:
            time = None
        for name in (*filter(None, [time]), *columns.values(), *self.where):
            if table.header.count(name) != 1:
                where = f"{self.path}:{table.top}"
                instead = "; without times write columns.time_s=null, and spacing_s if not 1"
                raise ValueError(
                    f"{where}: must have one column {name!r}, got {table.header}"
                    + instead * (name == time)
                )
        if time is None:
            return Source(table, columns, None, self.spacing_s or 1.0)
        times = Times(self.path, time, self.time_format, self.units.get("time_s"))
        return Source(table, columns, times)

    def _chunks(self, table: Table) -> Iterator[Chunk]:
        seen: dict[str, set[str]] = {name: set() for name in self.where}
        picked = not self.where
        for chunk in table.chunks():
            if not self.where:
                yield chunk
                continue
            chosen = [True] * len(chunk.lines)
            for name, value in self.where.items():
                texts = [text.strip() for text in chunk.texts[name]]
                seen[name].update(texts)
                same = (text == str(value) for text in texts)
                chosen = [kept and equal for kept, equal in zip(chosen, same, strict=True)]
            if any(chosen):
                picked = True
                left = {name: list(compress(cells, chosen)) for name, cells in chunk.texts.items()}
                yield Chunk(list(compress(chunk.lines, chosen)), left)
        if not picked:
            there = "; ".join(f"{name}: {', '.join(sorted(seen[name])[:5])}" for name in seen)
            raise ValueError(
                f"{self.path}: where must leave at least one row, got {dict(self.where)}; {there}"
            )

    def _without_holes(self, rows: Rows, source: Source) -> tuple[Rows, int]:
        steps = array("d", map(sub, rows.times_s[1:], rows.times_s))
        sample = steps[:: len(steps) // SAMPLED + 1]
        usual_s = median_low(sample) if len(sample) > 2 else 0.0
        even = sum(abs(step_s - usual_s) <= usual_s / 10 for step_s in sample)
        are_long = map(gt, steps, repeat(LONGEST_STEP * usual_s))
        holes = list(compress(count(1), are_long)) if even * 2 > len(sample) else []
        if not holes:
            return rows, 0
        if self.no_reading is None:
            raise ValueError(
                f"{self.path}:{rows.lines[holes[0]]}: no row for {steps[holes[0] - 1]:g} s before "
                f"it, and mostly there is one every {usual_s:g} s; write no_reading=hold (the row "
                "before holds) or no_reading=outage"
            )
        if self.no_reading == "outage":
            for place in reversed(holes):
                rows.lines.insert(place, rows.lines[place - 1])
                rows.times_s.insert(place, rows.times_s[place - 1] + usual_s)
                for name, values in rows.links.items():
                    values.insert(
                        place, self.floor_mbit if name == "rate_mbit" else values[place - 1]
                    )
        return rows, len(holes)

    def _hint(self, name: str, value: float) -> str:
        said = f", of column {self.columns[name]!r}" if name in self.columns else ""
        if name == "rate_mbit" and value > MOST_MBIT:
            return f"{said}; bit/s need units={{rate_mbit: 1e-6}}, kbit/s {{rate_mbit: 0.001}}"
        if name == "loss" and value >= 1:
            return f"{said}; per cent need units={{loss: 0.01}}"
        return said


class _Frozen(dict):
    """A mapping that can be hashed, since profiles are hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def _one_a_time(rows: Rows, which: str) -> Rows:
    """Return one row per time: the first, last or mean of consecutive rows with equal times."""
    times_s = rows.times_s
    starts = [0, *compress(count(1), map(ne, times_s[1:], times_s)), len(times_s)]
    runs = list(pairwise(starts))
    kept = [end - 1 for _, end in runs] if which == "last" else starts[:-1]

    def some(values: array) -> array:
        return array(values.typecode, map(values.__getitem__, kept))

    links = {name: some(values) for name, values in rows.links.items()}
    if which == "mean":
        links = {
            name: array("d", (fmean(values[begin:end]) for begin, end in runs))
            for name, values in rows.links.items()
        }
    return Rows(some(rows.lines), some(times_s), links)
