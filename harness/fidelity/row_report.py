"""Rows that others measured beside what is predicted of them, by testbed; pooled with nothing."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from harness.fidelity.bench import Bench
from harness.fidelity.cells import Unpredictable
from harness.fidelity.measured import RowPredictor
from harness.fidelity.rows import Measurement


class RowResult(NamedTuple):
    """A row, and what is predicted of it; `error` is predicted over published, less 1."""

    row: Measurement
    bench: str  # testbed; "" of a row that none takes
    predicted: float | None
    error: float | None
    is_input: bool
    why: str  # there is no prediction


def assess_rows(rows: Iterable[Measurement], known: Sequence[Bench]) -> list[RowResult]:
    """Every row in its order, predicted by the first testbed that takes it."""
    return [_assessed(row, next((each for each in known if each.is_of(row)), None)) for row in rows]


def _assessed(row: Measurement, bench: Bench | None) -> RowResult:
    if bench is None:
        return RowResult(row, "", None, None, False, "no testbed takes it")
    try:
        predicted = RowPredictor(bench).predict(row)
    except Unpredictable as reason:
        return RowResult(row, bench.name, None, None, bench.is_input(row), str(reason))
    error = predicted / row.value - 1 if row.value else None
    return RowResult(row, bench.name, predicted, error, bench.is_input(row), "")


class RowDistance(NamedTuple):
    """Absolute errors of rows that are no inputs, in percent; nan for no row."""

    rows: int
    median: float
    p90: float
    worst: float


def row_distance(found: Iterable[RowResult]) -> RowDistance:
    errors = [100 * abs(r.error) for r in found if r.error is not None and not r.is_input]
    if not errors:
        return RowDistance(0, *[float("nan")] * 3)
    p90 = float(np.percentile(errors, 90))
    return RowDistance(len(errors), float(np.median(errors)), p90, max(errors))


def told_rows(found: Sequence[RowResult]) -> pd.DataFrame:
    """A row a row: its columns, and what was predicted."""
    return pd.DataFrame(
        {
            **each.row._asdict(),
            "testbed": each.bench,
            "predicted": each.predicted,
            "error_percent": None if each.error is None else 100 * each.error,
            "input": each.is_input,
            "why": each.why,
        }
        for each in found
    )


def show_rows(console: Console, known: Sequence[Bench], found: Sequence[RowResult]) -> None:
    """Constants of every testbed that took a row, its rows, and how far apart they are."""
    for bench in known:
        of_it = [each for each in found if each.bench == bench.name]
        if not of_it:
            continue
        console.print(f"\n{bench.name}: {bench.title}", markup=False)
        told = ", ".join(f"{name} {value:.4g}" for name, value in bench.constants.items())
        inputs = sum(each.is_input for each in of_it)
        console.print(f"  constants of {inputs} inputs: {told or 'none yet'}", markup=False)
        for each in of_it:
            console.print(_line(each), markup=False, soft_wrap=True)
        kinds = dict.fromkeys((each.row.id, each.row.operation, each.row.metric) for each in of_it)
        for kind in kinds:
            same = [r for r in of_it if (r.row.id, r.row.operation, r.row.metric) == kind]
            console.print(row_line(", ".join(kind), row_distance(same)), markup=False)
        console.print(row_line(f"{bench.name}, no inputs", row_distance(of_it)), markup=False)
    if strangers := [each for each in found if not each.bench]:
        console.print(f"{len(strangers)} rows are of no testbed", markup=False)


def row_line(what: str, found: RowDistance) -> str:
    return (
        f"{what}: median {found.median:.1f} % p90 {found.p90:.1f} % worst {found.worst:.1f} % "
        f"over {found.rows} rows"
    )


def _line(each: RowResult) -> str:
    row = each.row
    what = (row.operation, row.method, f"{row.workers} workers", row.network, row.metric)
    size = f"{row.bytes} bytes" if row.bytes else ""
    predicted = each.why if each.predicted is None else f"{each.predicted:.4g}"
    error = "" if each.error is None else f"{100 * each.error:+.1f} %"
    mark = " input" if each.is_input else ""
    return f"  {', '.join(what)} {size}: {row.value:.4g} {row.unit}, {predicted} {error}{mark}"
