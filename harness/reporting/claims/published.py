"""Published numbers beside measured ones: a row for each number that runs reproduce.

A study's published.csv has the numbers, and its measured.py the measures. Ratios, densities and
shares of one run relative to another are comparable at every scale if the number of workers is the
paper's. Samples/s, seconds and accuracies are comparable only at scale=paper, because at
scale=laptop a small model on other data stands for the paper's.
"""

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd

from harness.reporting.claims.base import NotDecidable, Runs
from harness.reporting.claims.numbers import MeasuredCell
from harness.studies import studies

WORDS = {"two": 2.0}  # published values that are written out


class Side(NamedTuple):
    """A published number and our measurement of it; a row of `side_by_side`."""

    paper: str
    id: str
    model: str
    network: str  # of the paper
    method: str
    metric: str
    published: float  # nan if the paper did not reach it
    measured: float  # mean over seeds
    low: float  # its 95 % interval; nan below two seeds
    high: float
    unit: str
    bound: str  # low | high | unknown: a time was censored, see `ratios.Ratio`
    comparable: bool
    note: str  # why it is not comparable, or what differs
    kind: str  # packets | virtual: of the runs
    scale: str
    runs: tuple[str, ...]


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `Side` rows for the runs in `table`, of `metrics.table`.

    Packets and virtual time have separate rows, and so has each scale. Numbers that no run measures
    are left out.
    """
    cells = [
        (cell, measured)
        for study in studies()
        if (measured := study.module("measured")) is not None
        for cell in measured.cells(_rows(study.folder / "published.csv"))
    ]
    kinds: list[Any] = list(table.groupby(["world", "scale"]))
    found = [
        side
        for (kind, scale), rows in kinds
        for cell, measured in cells
        if (side := _side(cell, measured, rows, kind, scale)) is not None
    ]
    return pd.DataFrame(found, columns=list(Side._fields))


def _rows(file: Path) -> list[Any]:
    read = pd.read_csv(file, dtype=str, keep_default_na=False)
    return list(read.itertuples())


def _side(
    cell: MeasuredCell, measured: ModuleType, rows: pd.DataFrame, kind: str, scale: str
) -> Side | None:
    runs = Runs(rows, measured.WORKERS, scale)
    try:
        found = cell.measure(runs)
    except NotDecidable:
        return None
    row, used = cell.row, runs.rows
    comparable = not cell.absolute or scale == "paper"
    return Side(
        paper=row.paper,
        id=row.id,
        model=row.model,
        network=row.network,
        method=row.method,
        metric=row.metric,
        published=WORDS.get(row.value, float(pd.to_numeric(row.value, errors="coerce"))),
        measured=found.mean,
        low=found.low,
        high=found.high,
        unit=row.unit,
        bound=found.bound,
        comparable=comparable,
        note="; ".join(_differs(used, comparable) + measured.notes(row, used, found)),
        kind=kind,
        scale=scale,
        runs=tuple(runs.seen.runs),
    )


def _differs(rows: pd.DataFrame, comparable: bool) -> list[str]:
    """Return why a number is not comparable with the paper's, else []."""
    row = rows.iloc[0]
    return [] if comparable else [f"absolute, of {row.model} on {row.dataset}"]
