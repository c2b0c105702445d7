"""Cells of the papers' tables, one a row of a CSV: what was published, of what, in which unit."""

import csv
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import NamedTuple

COLUMNS = (
    "paper", "id", "model", "dataset", "network", "workers", "method", "metric", "value", "unit",
    "origin",
)  # fmt: skip
NOT_NUMBERS = ("N/A", "NA", "")


class Unpredictable(ValueError):
    """A cell is of a kind that is predicted, but something about it is not known."""


class BadCell(ValueError):
    """A CSV of cells cannot be read; the message names file, line and column."""


class Cell(NamedTuple):
    """One published figure; all columns as they are in the file, `value` None where it has none."""

    paper: str
    id: str
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


@dataclass(frozen=True)
class Selector:
    """Cells whose columns have these values; all of any other column."""

    columns: dict[str, str]

    def __post_init__(self) -> None:
        if unknown := set(self.columns) - set(COLUMNS):
            raise ValueError(f"columns must be among {', '.join(COLUMNS)}, got {sorted(unknown)}")

    def takes(self, cell: Cell) -> bool:
        return all(getattr(cell, column) == value for column, value in self.columns.items())


def read(path: Path | str, papers: Collection[str] = ()) -> list[Cell]:
    """Cells of a CSV, each of one of `papers` where some are told.

    BadCell for a file that lacks a column or has a value that is no number.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            _check_header(path, header)
            return [_cell(path, rows.line_num, header, row, papers) for row in rows if row]
    except OSError as error:
        raise BadCell(f"{path}: {error.strerror}; give a CSV of cells") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadCell(f"{path}: not a CSV in UTF-8: {error}") from error


def _check_header(path: Path, header: list[str]) -> None:
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise BadCell(
            f"{path}, line 1: column {', '.join(missing)} is missing; columns must be "
            f"{','.join(COLUMNS)}"
        )


def _cell(
    path: Path, line: int, header: list[str], row: list[str], papers: Collection[str]
) -> Cell:
    if len(row) != len(header):
        raise BadCell(f"{path}, line {line}: must have {len(header)} columns, got {len(row)}")
    told = {column: text.strip() for column, text in zip(header, row, strict=True)}
    if papers and told["paper"] not in papers:
        raise BadCell(
            f"{path}, line {line}, column paper: must be one of {', '.join(papers)}, "
            f"got {told['paper']!r}"
        )
    text = told["value"]
    return Cell(
        **{column: told[column] for column in COLUMNS if column != "value"},  # type: ignore[arg-type]
        value=_number(path, line, text, told["unit"]),
        text=text,
    )


def _number(path: Path, line: int, text: str, unit: str) -> float | None:
    """None for what is no figure: not told, a category, or a word of the running text."""
    if text in NOT_NUMBERS or unit == "category":
        return None
    try:
        value = float(text)
    except ValueError:
        if text.isalpha():  # "two"
            return None
        value = nan
    if not isfinite(value):
        raise BadCell(
            f"{path}, line {line}, column value: must be a finite number or one of "
            f"{', '.join(map(repr, NOT_NUMBERS))}, got {text!r}"
        )
    return value


def rate_mbit(network: str) -> float | None:
    """Rate in a network's name, such as 500Mbps, 2.5Gbps or 10GbE; None for an empty name.

    Unpredictable for any other name.
    """
    if not network:
        return None
    found = re.match(r"([\d.]+)\s*([MG])b", network)
    if found is None:
        raise Unpredictable(f"network must be a rate such as 500Mbps or 10GbE, got {network!r}")
    return float(found[1]) * {"M": 1, "G": 1000}[found[2]]


def first(cells: Iterable[Cell], **columns: str) -> Cell | None:
    """The first of `cells` with these columns."""
    selector = Selector(columns)
    return next((cell for cell in cells if selector.takes(cell)), None)
