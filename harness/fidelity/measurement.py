"""Published measurements in CSV files: cells of a paper's tables, or rows of a benchmark.

`study fidelity` and `harness.calibrate` read them. Anybody may have written a file, so its size,
columns and numbers are checked first.
"""

import csv
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

COLUMNS = (
    "paper", "id", "model", "dataset", "network", "workers", "method", "metric", "value", "unit",
    "origin",
)  # fmt: skip
ROW_COLUMNS = (
    "source", "id", "stack", "operation", "workers", "network", "rtt_ms", "rate_mbit", "bytes",
    "method", "metric", "value", "unit", "statistic", "origin",
)  # fmt: skip
NOT_NUMBERS = ("N/A", "NA", "")  # texts of `value` that mean no number
RANGES = {  # of the numbers in benchmark rows
    "workers": (2, 10_000),
    "rtt_ms": (0, 60_000),
    "rate_mbit": (0, 1e6),
    "bytes": (0, 1 << 50),
    "value": (0, 1e15),
}
NEVER_EMPTY = ("workers", "value")
MOST_BYTES, MOST_ROWS = 1 << 23, 20_000
LOSS = re.compile(r"\bloss (\d{1,2}(?:\.\d{1,6})?) ?%")  # below 100


class Unpredictable(ValueError):
    """A measurement of a predictable kind with a condition that is unknown."""


class BadMeasurement(ValueError):
    """A CSV or a testbed cannot be read; the message names file, line and column."""


class Measurement(NamedTuple):
    """One published number. If the source does not give a text it is "", a number None."""

    paper: str  # or the benchmark's source
    id: str  # table, figure or place in the text
    model: str
    dataset: str
    network: str
    workers: str
    method: str
    metric: str
    value: float | None
    unit: str
    origin: str
    text: str = ""  # the value as it is in the file
    stack: str = ""  # only benchmark rows have this and the following fields
    operation: str = ""
    rtt_ms: float | None = None
    rate_mbit: float | None = None
    bytes: int | None = None
    statistic: str = ""

    @property
    def loss(self) -> float:
        """Share of packets lost in one direction, which `network` gives as "loss 0.1 %"."""
        found = LOSS.search(self.network)
        return float(found[1]) / 100 if found else 0.0


@dataclass(frozen=True)
class Selector:
    """A filter for measurements: the named columns must have these values."""

    columns: Mapping[str, Any]

    def __post_init__(self) -> None:
        if unknown := {*self.columns} - {*COLUMNS, *ROW_COLUMNS}:
            known = ", ".join(dict.fromkeys((*COLUMNS, *ROW_COLUMNS)))
            raise BadMeasurement(f"columns must be among {known}, got {sorted(unknown)}")

    def takes(self, measurement: Measurement) -> bool:
        for column, wanted in self.columns.items():
            value = getattr(measurement, "paper" if column == "source" else column)
            if value != wanted and str(value) != str(wanted):
                return False
        return True


def first(measurements: Iterable[Measurement], **columns: str) -> Measurement | None:
    """Return the first measurement whose columns have these values, or None."""
    return next(filter(Selector(columns).takes, measurements), None)


def read(path: Path | str, papers: Collection[str] = ()) -> list[Measurement]:
    """Read a CSV with the columns of a paper's cells, or of benchmark rows, in any order.

    With `papers`, a cell must be of one of them. Raise `BadMeasurement` if the file is too large,
    lacks a column or has a value out of range.
    """
    path = Path(path)
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise BadMeasurement(f"{path}: must have at most {MOST_BYTES} bytes, got {size}")
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            wanted = ROW_COLUMNS if "operation" in header else COLUMNS
            if missing := [column for column in wanted if column not in header]:
                raise BadMeasurement(
                    f"{path}, line 1: column {', '.join(missing)} is missing; columns must be "
                    f"{','.join(wanted)}"
                )
            found = []
            for line in filter(None, lines):
                where = f"{path}, line {lines.line_num}"
                if len(line) != len(header):
                    must = f"must have {len(header)} columns, got {len(line)}"
                    raise BadMeasurement(f"{where}: {must}")
                texts = dict(zip(header, map(str.strip, line), strict=True))
                texts = {column: texts[column] for column in wanted}
                found.append(_row(where, texts) if "operation" in texts else _cell(where, texts))
                if papers and not found[-1].operation and found[-1].paper not in papers:
                    known, got = ", ".join(papers), found[-1].paper
                    raise BadMeasurement(
                        f"{where}, column paper: must be one of {known}, got {got!r}"
                    )
    except OSError as error:
        raise BadMeasurement(f"{path}: {error.strerror}; give a CSV of measurements") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadMeasurement(f"{path}: not a CSV in UTF-8: {error}") from error
    if len(found) > MOST_ROWS:
        raise BadMeasurement(f"{path}: must have at most {MOST_ROWS} rows, got {len(found)}")
    return found


def _cell(where: str, texts: dict[str, str]) -> Measurement:
    text, value = texts["value"], None
    if text not in NOT_NUMBERS and texts["unit"] != "category":
        try:
            value = float(text)
        except ValueError:
            value = None if text.isalpha() else nan  # a word such as "two" is no number
    if value is not None and not isfinite(value):
        allowed = ", ".join(map(repr, NOT_NUMBERS))
        raise BadMeasurement(
            f"{where}, column value: must be a finite number or one of {allowed}, got {text!r}"
        )
    return Measurement(**texts | {"value": value, "text": text})  # type: ignore[arg-type]


def _row(where: str, texts: dict[str, str]) -> Measurement:
    numbers: dict[str, Any] = {}
    for name, (least, most) in RANGES.items():
        numbers[name] = None
        if texts[name] or name in NEVER_EMPTY:
            try:
                numbers[name] = float(texts[name])
            except ValueError:
                numbers[name] = nan
            if not (isfinite(numbers[name]) and least <= numbers[name] <= most):
                must = f"must be a number in [{least:g}, {most:g}]"
                raise BadMeasurement(f"{where}, column {name}: {must}, got {texts[name]!r}")
    numbers["workers"] = str(int(numbers["workers"]))
    if numbers["bytes"] is not None:
        numbers["bytes"] = int(numbers["bytes"])
    names = {"paper": texts["source"], "model": "", "dataset": "", "text": texts["value"]}
    texts = {column: text for column, text in texts.items() if column != "source"}
    return Measurement(**names | texts | numbers)


def rate_mbit(network: str) -> float | None:
    """Return the rate in a name such as 10GbE, None if empty; `Unpredictable` for other names."""
    if not network:
        return None
    found = re.match(r"([\d.]+)\s*([MG])b", network)
    if found is None:
        raise Unpredictable(f"network must be a rate such as 500Mbps or 10GbE, got {network!r}")
    return float(found[1]) * {"M": 1, "G": 1000}[found[2]]
