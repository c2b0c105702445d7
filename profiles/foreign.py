"""Recordings as others publish them: Pensieve's cooked traces, and tables whose columns are named.

Both are read into the rows of `profiles.trace`: times begin at 0, and no rate is below a floor, as
a link that stands still for good would never end a run.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiles.base import Link
from profiles.limits import check_between, check_mbit
from profiles.recordings import number
from profiles.trace import COLUMNS, Trace, parse

MOST_UNIT = 1e9


@dataclass(frozen=True)
class Cooked(Trace):
    """Pensieve's format (Mao et al., 2017): a line has seconds and Mbit/s, between white space."""

    floor_mbit: float = 0.1  # least rate

    def __post_init__(self) -> None:
        check_mbit(floor_mbit=self.floor_mbit)
        super().__post_init__()

    def _parsed(self, lines: list[str]) -> tuple[list[float], list[Link]]:
        rows = []
        for place, line in enumerate(lines, start=1):
            texts = line.split()
            if len(texts) != 2:
                raise ValueError(f"{self.path}:{place}: must be seconds and Mbit/s, got {line!r}")
            where = f"{self.path}:{place}"
            rows.append((where, number(texts[0], where), {"rate_mbit": number(texts[1], where)}))
        return _as_trace(rows, self.floor_mbit)


@dataclass(frozen=True)
class Columns(Trace):
    """A CSV with a header, whose columns are told: as Lumos5G's, one row a second.

    `columns` says which of it is `time_s` and `rate_mbit`, and, where there are any, `delay_ms`,
    `jitter_ms`, `loss` and `reorder`; `units` what a value of it is multiplied by. Only rows whose
    columns have the values of `where` count.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    floor_mbit: float = 0.1  # least rate

    def __post_init__(self) -> None:
        check_mbit(floor_mbit=self.floor_mbit)
        for key in ("columns", "units", "where"):
            if not hasattr(getattr(self, key), "items"):
                raise ValueError(f"{key} must be a mapping, got {getattr(self, key)!r}")
            object.__setattr__(self, key, _Frozen(getattr(self, key)))
        if unknown := (set(self.columns) | set(self.units)) - set(COLUMNS):
            known = ", ".join(COLUMNS)
            raise ValueError(f"columns, units must be of {known}, got {sorted(unknown)}")
        if missing := {"time_s", "rate_mbit"} - set(self.columns):
            raise ValueError(f"columns must say which is {', '.join(sorted(missing))}, got none")
        for unit in self.units.values():
            check_between(-MOST_UNIT, MOST_UNIT, units=unit)
        super().__post_init__()

    def _parsed(self, lines: list[str]) -> tuple[list[float], list[Link]]:
        top = next((place for place, line in enumerate(lines) if line[:1] != "#"), len(lines))
        rows = csv.reader(lines[top:], strict=True)
        try:
            header = [name.strip() for name in next(rows, [])]
            for name in (*self.columns.values(), *self.where):
                if header.count(name) != 1:
                    where = f"{self.path}:{top + 1}"
                    raise ValueError(f"{where}: must have one column {name!r}, got {header}")
            return _as_trace(self._picked(header, rows, top), self.floor_mbit)
        except csv.Error as error:
            raise ValueError(f"{self.path}:{top + rows.line_num}: not a CSV: {error}") from error

    def _picked(self, header: list[str], rows: Any, top: int) -> Iterator[tuple[str, float, dict]]:
        for row in rows:
            where = f"{self.path}:{top + rows.line_num}"
            if len(row) != len(header):
                raise ValueError(f"{where}: must have {len(header)} values, got {len(row)}")
            told = dict(zip(header, row, strict=True))
            if any(told[name].strip() != str(value) for name, value in self.where.items()):
                continue
            values = {
                name: number(told[column].strip(), f"{where}: {column}") * self.units.get(name, 1.0)
                for name, column in self.columns.items()
            }
            yield where, values.pop("time_s"), values


class _Frozen(dict):
    """A mapping that can be hashed, as profiles are."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def _as_trace(rows: Any, floor_mbit: float) -> tuple[list[float], list[Link]]:
    """Rows from the first one's time on, checked as those of `profiles.trace` are."""
    begin_s: float | None = None
    starts_s: list[float] = []
    links: list[Link] = []
    for where, time_s, values in rows:
        begin_s = time_s if begin_s is None else begin_s
        values["rate_mbit"] = max(floor_mbit, values["rate_mbit"])
        names = list(values)
        line = ",".join([repr(time_s - begin_s), *(repr(values[name]) for name in names)])
        try:
            [_], [link] = parse("", [",".join(["time_s", *names]), "0" + line[line.index(",") :]])
        except ValueError as error:
            raise ValueError(f"{where}: {str(error).removeprefix(':2: ')}") from error
        if starts_s and time_s - begin_s <= starts_s[-1]:
            before_s = starts_s[-1] + begin_s
            raise ValueError(f"{where}: its time must be above {before_s:g}, got {time_s:g}")
        starts_s.append(time_s - begin_s)
        links.append(link)
    if not links:
        raise ValueError("a recording must have at least one row that counts, got none")
    return starts_s, links
