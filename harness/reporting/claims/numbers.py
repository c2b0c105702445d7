"""What a published number is held against: a measure, and the numbers it gives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from harness.reporting.analysis import statistics
from harness.reporting.claims.base import Group, Runs


class Number(NamedTuple):
    """A number measured from runs, with its interval and, where censored, its bound."""

    mean: float
    low: float
    high: float
    bound: str = ""


Measure = Callable[[Runs], Number]


class MeasuredCell(NamedTuple):
    """A row of a paper's file, what measures it, and whether that is an absolute number."""

    row: Any
    measure: Measure
    absolute: bool


def measured_cells(
    rows: list[Any], measure: Callable[[Any], Measure | None], absolute: str
) -> list[MeasuredCell]:
    """Cells for those of `rows` that `measure` knows; of the metric `absolute` numbers as such."""
    found = ((row, measure(row)) for row in rows)
    return [MeasuredCell(row, known, row.metric == absolute) for row, known in found if known]


def mean(group: Group, column: str, method: str) -> Number:
    """Over seeds."""
    return Number(*statistics.interval(group.rows(method)[column]))


def ratio(group: Group, column: str, over: str, under: str) -> Number:
    """Paired by seed."""
    found = group.ratio(column, over, under)
    return Number(found.mean, found.low, found.high, found.bound)


def fewer(rows: pd.DataFrame, workers: int) -> list[str]:
    """Note that runs have another number of workers than the paper."""
    found = rows.workers.iloc[0]
    return [] if found == workers else [f"{found} workers, published with {workers}"]
