"""Rows of measurements on machines of others: collectives and steps, one figure each, of a CSV.

A file comes from anybody: its size, numbers and columns are checked before anything is predicted.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from harness.fidelity.cells import BadCell

TEXTS = ("source", "id", "stack", "operation", "network", "method", "metric", "unit", "statistic",
         "origin")  # fmt: skip
RANGES = {  # of what is a number; those with no lower bound above 0 may be empty
    "workers": (2, 10_000),
    "rtt_ms": (0, 60_000),
    "rate_mbit": (0, 1e6),
    "bytes": (0, 1 << 50),
    "value": (0, 1e15),
}
ROW_COLUMNS = (
    "source", "id", "stack", "operation", "workers", "network", "rtt_ms", "rate_mbit", "bytes",
    "method", "metric", "value", "unit", "statistic", "origin",
)  # fmt: skip
MOST_BYTES, MOST_ROWS = 1 << 23, 20_000
LOSS = re.compile(r"\bloss (\d{1,2}(?:\.\d{1,6})?) ?%")  # below 100


class Measurement(NamedTuple):
    """One published figure of a collective, a transfer or a step; None: the source has none."""

    source: str
    id: str
    stack: str
    operation: str
    workers: int
    network: str
    rtt_ms: float | None
    rate_mbit: float | None
    bytes: int | None
    method: str
    metric: str
    value: float
    unit: str
    statistic: str
    origin: str

    @property
    def loss(self) -> float:
        """Share of packets lost one way, which `network` tells as "loss 0.1 %"."""
        found = LOSS.search(self.network)
        return float(found[1]) / 100 if found else 0.0


@dataclass(frozen=True)
class RowSelector:
    """Rows whose columns have these values; all of any other column."""

    columns: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "RowSelector":
        """BadCell for a column that rows do not have."""
        if unknown := set(told) - set(ROW_COLUMNS):
            known = ", ".join(ROW_COLUMNS)
            raise BadCell(f"columns of rows must be among {known}, got {sorted(unknown)}")
        return cls(tuple(told.items()))

    def takes(self, row: Measurement) -> bool:
        return all(getattr(row, name) == value for name, value in self.columns)


def has_rows(path: Path) -> bool:
    """Tell whether a CSV begins with the columns of rows; False also if it cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return file.readline(1000).strip() == ",".join(ROW_COLUMNS)
    except (OSError, UnicodeDecodeError):
        return False


def read_rows(path: Path) -> list[Measurement]:
    """Rows of a CSV; BadCell names file, line, column and value."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise BadCell(f"{path}: must have at most {MOST_BYTES} bytes, got {size}")
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)
            header = tuple(next(lines, ()))
            if header != ROW_COLUMNS:
                wanted = ",".join(ROW_COLUMNS)
                raise BadCell(f"{path}, line 1: columns must be {wanted}, got {','.join(header)}")
            found = [_row(f"{path}, line {lines.line_num}", row) for row in lines if row]
    except OSError as error:
        raise BadCell(f"{path}: {error.strerror}; give a CSV of rows") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadCell(f"{path}: not a CSV in UTF-8: {error}") from error
    if len(found) > MOST_ROWS:
        raise BadCell(f"{path}: must have at most {MOST_ROWS} rows, got {len(found)}")
    return found


def _row(where: str, row: list[str]) -> Measurement:
    if len(row) != len(ROW_COLUMNS):
        raise BadCell(f"{where}: must have {len(ROW_COLUMNS)} columns, got {len(row)}")
    told = {name: text.strip() for name, text in zip(ROW_COLUMNS, row, strict=True)}
    numbers = {name: _number(where, name, told[name]) for name in RANGES}
    for name in ("workers", "value"):
        if numbers[name] is None:
            raise BadCell(f"{where}, column {name}: must be a number, got ''")
    wholes = {
        name: None if (n := numbers[name]) is None else int(n) for name in ("workers", "bytes")
    }
    return Measurement(**{**{name: told[name] for name in TEXTS}, **numbers, **wholes})  # type: ignore[arg-type]


def _number(where: str, name: str, text: str) -> float | None:
    if not text:
        return None
    least, most = RANGES[name]
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and least <= value <= most):
        wanted = f"must be a number in [{least:g}, {most:g}]"
        raise BadCell(f"{where}, column {name}: {wanted}, got {text!r}")
    return value
