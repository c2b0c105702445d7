"""Measures that reproduce published numbers; the measured.py of each study uses them."""

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
    """A row of published.csv, the measure that reproduces it, and whether it is absolute."""

    row: Any
    measure: Measure
    absolute: bool


def measured_cells(
    rows: list[Any], measure: Callable[[Any], Measure | None], absolute: str
) -> list[MeasuredCell]:
    """Return cells for the `rows` that `measure` knows; those of metric `absolute` are absolute."""
    found = ((row, measure(row)) for row in rows)
    return [MeasuredCell(row, known, row.metric == absolute) for row, known in found if known]


def mean(group: Group, column: str, method: str) -> Number:
    """Return the mean of `column` over the method's seeds, with its 95 % interval."""
    return Number(*statistics.interval(group.rows(method)[column]))


def ratio(group: Group, column: str, over: str, under: str) -> Number:
    """Return `column` of `over` divided by that of `under`, paired by seed."""
    found = group.ratio(column, over, under)
    return Number(found.mean, found.low, found.high, found.bound)


def fewer(rows: pd.DataFrame, workers: int) -> list[str]:
    """Return a note if `rows` have another number of workers than the paper, else []."""
    found = rows.workers.iloc[0]
    return [] if found == workers else [f"{found} workers, published with {workers}"]
