"""Predicted beside published, cell by cell, and how far apart they are."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.fidelity.cells import Cell, Unpredictable
from harness.fidelity.predictor import Predictor
from harness.fidelity.testbed import Standing
from harness.fidelity.timing import timings

# Percentages that say how much a time or a speed changes, and in which direction.
CHANGES = {
    "iteration_time_increase": 1,
    "improvement": 1,
    "slowdown": 1,
    "slowdown_mean": 1,
    "slowdown_vs_no_WFBP": 1,
    "speed_advantage_min": 1,
    "speed_advantage_max": 1,
    "communication_overhead_increase": 1,
    "below_linear_scaling": -1,
}


class Assessed(NamedTuple):
    """One timing cell; `error` is predicted / published - 1, None without either.

    Of a percentage that says how a time changes, `error` is that of the factor: 10 % longer is 1.10
    times as long. `printed_error` is of the percentage as it is printed.
    """

    cell: Cell
    predicted: float | None
    error: float | None
    printed_error: float | None
    standing: Standing
    why: str
    further: bool  # from a CSV of further cells


class Distance(NamedTuple):
    """Summary of absolute errors over some cells, in percent; nan for no cell."""

    cells: int
    median: float
    p90: float


def assess(cells: Sequence[Cell], further: Sequence[Cell] = ()) -> list[Assessed]:
    """Every timing cell of the studies that predict theirs, further ones last."""
    everything = [*cells, *further]
    predictors = {
        paper: each.predictor(each.testbed, [cell for cell in everything if cell.paper == paper])
        for paper, each in timings().items()
    }
    found = []
    for number, cell in enumerate(everything):
        if cell.paper in predictors:
            row = assessed(cell, predictors[cell.paper], number >= len(cells))
            found += [row] if row else []
    return found


def assessed(cell: Cell, predictor: Predictor, further: bool) -> Assessed | None:
    """Assess a cell; None for a cell that is no time."""
    try:
        predicted = predictor.predict(cell)
    except Unpredictable as reason:
        return Assessed(cell, None, None, None, "left out", f"not predicted: {reason}", further)
    if predicted is None:
        return None
    standing, why = predictor.testbed.standing(cell)
    printed = predicted / cell.value - 1 if cell.value else None
    error = printed
    if cell.value and cell.metric in CHANGES:
        error = _factor(cell, predicted) / _factor(cell, cell.value) - 1
    if error is None and standing == "counts":
        standing, why = "left out", "no number is published"
    return Assessed(cell, float(predicted), error, printed, standing, why, further)


def _factor(cell: Cell, percent: float) -> float:
    return 1 + CHANGES[cell.metric] * percent / 100


def distance(found: Iterable[Assessed], counting: bool, printed: bool = False) -> Distance:
    """Errors of the cells that count, or of all that are neither an input nor a repetition."""
    standings = ("counts",) if counting else ("counts", "left out")
    told = [
        row.printed_error if printed else row.error for row in found if row.standing in standings
    ]
    errors = [100 * abs(error) for error in told if error is not None]
    if not errors:
        return Distance(0, float("nan"), float("nan"))
    return Distance(len(errors), float(np.median(errors)), float(np.percentile(errors, 90)))


def orders(found: Sequence[Assessed]) -> dict[tuple[str, str], float]:
    """Spearman's correlation of predicted and published, by table and model.

    Of all methods, and networks, of the table, inputs and those left out too: there are few.
    """
    compared = {table: metric for t in timings().values() for table, metric in t.compares.items()}
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in found:
        cell = row.cell
        if compared.get(cell.id) == cell.metric and row.predicted is not None and cell.value:
            rows.setdefault((cell.id, cell.model), []).append((row.predicted, cell.value))
    return {
        key: float(pd.DataFrame(pairs).rank().corr().to_numpy()[0, 1])
        for key, pairs in rows.items()
        if len(pairs) > 2
    }


def frame(found: Sequence[Assessed]) -> pd.DataFrame:
    """A row a cell: the columns of the papers' CSVs, and what was predicted."""
    rows: list[dict[str, Any]] = [
        {
            **{name: value for name, value in row.cell._asdict().items() if name != "text"},
            "value": row.cell.text,
            "predicted": row.predicted,
            "error_percent": None if row.error is None else 100 * row.error,
            "printed_error_percent": None if row.printed_error is None else 100 * row.printed_error,
            "standing": row.standing,
            "why": row.why,
            "further": row.further,
        }
        for row in found
    ]
    return pd.DataFrame(rows)
