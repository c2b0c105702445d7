"""Compare predictions with published values, one by one and pooled."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from harness.fidelity.bench import Bench, Standing
from harness.fidelity.collectives import RowPredictor
from harness.fidelity.measurement import COLUMNS, ROW_COLUMNS, Measurement, Unpredictable
from harness.fidelity.predictor import predictors

# Metrics that give a change in percent, and the sign of that change.
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


class Predicts(Protocol):
    """Interface of anything that predicts measurements: a `Predictor` or a `RowPredictor`."""

    @property
    def bench(self) -> Bench: ...
    def predict(self, cell: Measurement, /) -> float | None: ...


class Assessed(NamedTuple):
    """A measurement with its prediction; `error` is predicted / published - 1, or None.

    For a change in percent, `error` compares the factors: 10 % longer is a factor of 1.10.
    `printed_error` compares the percentages as printed.
    """

    cell: Measurement
    bench: str  # "" if no bench takes it
    predicted: float | None
    error: float | None
    printed_error: float | None
    standing: Standing
    why: str
    further: bool  # from a CSV of further cells


class Distance(NamedTuple):
    """Statistics of absolute errors in percent; NaN if there is no cell."""

    cells: int
    median: float
    p90: float
    worst: float


def assess(cells: Sequence[Measurement], further: Sequence[Measurement] = ()) -> list[Assessed]:
    """Predict every timing cell of the papers that have a predictor; `further` cells come last."""
    everything = [*cells, *further]
    known = {
        paper: kind(kind.own_bench(), [cell for cell in everything if cell.paper == paper])
        for paper, kind in predictors().items()
    }
    rows = [
        assessed(cell, known[cell.paper], number >= len(cells))
        for number, cell in enumerate(everything)
        if cell.paper in known
    ]
    return [row for row in rows if row is not None]


def assess_rows(rows: Iterable[Measurement], benches: Sequence[Bench]) -> list[Assessed]:
    """Predict each row on the first of `benches` that covers it. Mark other rows as left out."""
    found = []
    for row in rows:
        bench = next((bench for bench in benches if bench.has(row)), None)
        own = assessed(row, RowPredictor(bench)) if bench else None
        found.append(own or Assessed(row, "", None, None, None, "left out", "of no testbed", False))
    return found


def assessed(cell: Measurement, predictor: Predicts, further: bool = False) -> Assessed | None:
    """Predict one measurement and compute its errors; return None if it is no timing cell."""
    name = predictor.bench.name
    try:
        predicted = predictor.predict(cell)
    except Unpredictable as reason:
        why = f"not predicted: {reason}"
        return Assessed(cell, name, None, None, None, "left out", why, further)
    if predicted is None:
        return None
    standing, why = predictor.bench.standing(cell)
    error = printed = predicted / cell.value - 1 if cell.value else None
    if cell.value and (sign := CHANGES.get(cell.metric)):
        error = (1 + sign * predicted / 100) / (1 + sign * cell.value / 100) - 1
    if error is None and standing == "counts":
        standing, why = "left out", "no number is published"
    return Assessed(cell, name, float(predicted), error, printed, standing, why, further)


def distance(rows: Iterable[Assessed], counting: bool, printed: bool = False) -> Distance:
    """Pool the errors of cells that count; without `counting`, also of cells that are left out."""
    standings = ("counts",) if counting else ("counts", "left out")
    pooled = (
        row.printed_error if printed else row.error for row in rows if row.standing in standings
    )
    errors = [100 * abs(error) for error in pooled if error is not None]
    if not errors:
        return Distance(0, *[float("nan")] * 3)
    p90 = float(np.percentile(errors, 90))
    return Distance(len(errors), float(np.median(errors)), p90, max(errors))


def orders(rows: Sequence[Assessed]) -> dict[tuple[str, str], float]:
    """Return Spearman's correlation of predicted and published values, by table and model.

    It includes inputs and left-out cells, as a table has few cells of one model.
    """
    compared = {table: m for kind in predictors().values() for table, m in kind.compares.items()}
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        cell = row.cell
        if compared.get(cell.id) == cell.metric and row.predicted is not None and cell.value:
            groups.setdefault((cell.id, cell.model), []).append((row.predicted, cell.value))
    return {
        key: float(pd.DataFrame(pairs).rank().corr().to_numpy()[0, 1])
        for key, pairs in groups.items()
        if len(pairs) > 2
    }


def frame(rows: Sequence[Assessed]) -> pd.DataFrame:
    """Return one row per measurement: the columns of its CSV and the prediction."""
    of_benchmarks = any(row.cell.operation for row in rows)
    found: list[dict[str, Any]] = [
        {
            **(row.cell._asdict() | {"source": row.cell.paper, "value": row.cell.text}),
            "testbed": row.bench,
            "predicted": row.predicted,
            "error_percent": None if row.error is None else 100 * row.error,
            "printed_error_percent": None if row.printed_error is None else 100 * row.printed_error,
            "standing": row.standing,
            "why": row.why,
            "further": row.further,
        }
        for row in rows
    ]
    own = (*ROW_COLUMNS, "testbed") if of_benchmarks else COLUMNS
    columns = ("predicted", "error_percent", "printed_error_percent", "standing", "why", "further")
    return pd.DataFrame(found, columns=[*own, *columns])
