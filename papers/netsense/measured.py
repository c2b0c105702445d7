"""Map published cells of NetSenseML's tables and text to measures on our runs."""

from typing import Any

import pandas as pd

from harness.reporting.analysis import ratios, statistics
from harness.reporting.claims.base import Group, Runs
from harness.reporting.claims.numbers import MeasuredCell, Number, fewer, ratio
from papers.netsense import groups

WORKERS = groups.PUBLISHED_WORKERS
METHODS = {"NetSenseML": groups.NETSENSE, "AllReduce": groups.DENSE, "TopK-0.1": groups.TOP_K}
MBIT = {"Mbps": 1.0, "Gbps": 1000.0}
TABLES = {"netsense_table1": groups.RESNET18, "netsense_table2": groups.VGG16}


def cells(rows: list[Any]) -> list[MeasuredCell]:
    """Return measures for the cells of `TABLES` and of the text, and for the ratios they imply."""
    found = []
    for row in rows:
        if row.id in TABLES:
            found += _of_table(row, rows)
        elif row.id == "netsense_text_tta":
            found.append(MeasuredCell(row, _time_ratio, False))
    return found


def notes(row: Any, rows: pd.DataFrame, found: Number) -> list[str]:
    """Return notes on another number of workers than the paper's, and on a missing number."""
    late = found.mean != found.mean
    early = ["no evaluation before NetSenseML had its best accuracy, or none at all"]
    return fewer(rows, WORKERS) + (early if late else [])


def _of_table(row: Any, rows: list[Any]) -> list[MeasuredCell]:
    """Return the measured counterparts of one published cell, `row`.

    A throughput has two: itself, and its ratio to AllReduce's. Other metrics have one. `rows` are
    all cells of the paper.
    """
    experiment, method = TABLES[row.id], METHODS[row.method]
    mbit = float(row.network[:-4]) * MBIT[row.network[-4:]]

    def group(runs: Runs) -> Group:
        return groups.at_rate(runs, experiment, mbit)

    if row.metric == "best_test_accuracy":
        return [MeasuredCell(row, lambda runs: _accuracy(group(runs), method), True)]
    if row.metric == "convergence_time":
        return [MeasuredCell(row, lambda runs: _time(group(runs), method), True)]
    dense = next(
        r
        for r in rows
        if (r.id, r.network, r.metric, r.method) == (row.id, row.network, row.metric, "AllReduce")
    )
    over = str(float(row.value) / float(dense.value))
    follows = row._replace(metric="throughput over AllReduce", value=over, unit="x")

    def telling(runs: Runs) -> Group:
        return groups.telling_throughput(runs, experiment, mbit)

    return [
        MeasuredCell(row, lambda runs: _throughput(telling(runs), method), True),
        MeasuredCell(follows, lambda runs: _over_dense(telling(runs), method), False),
    ][: 1 if method == groups.DENSE else 2]


def _throughput(group: Group, method: str) -> Number:
    """Return samples/s after start-up, with the interval over seeds."""
    return Number(*statistics.interval(groups.settled(group, method).throughput))


def _over_dense(group: Group, method: str) -> Number:
    found = groups.settled_ratio(group, method, groups.DENSE)
    return Number(found.mean, found.low, found.high, found.bound)


def _accuracy(group: Group, method: str) -> Number:
    """Return the best accuracy in percent; rivals stop when NetSenseML has its own."""
    rows = group.rows(*{method, groups.NETSENSE})
    found = ratios.stopped(rows, groups.NETSENSE)
    return Number(*statistics.interval(100 * found[found.method == method].best))


def _time(group: Group, method: str) -> Number:
    """Return the mean convergence time in s, a lower bound if some run did not converge."""
    rows = group.rows(method)
    found = statistics.interval(rows.convergence_s)
    if rows.converged.all():
        return Number(*found)
    return Number(found.mean, float("nan"), float("nan"), "low")


def _time_ratio(runs: Runs) -> Number:
    """Return TopK-0.1's time to the target over NetSenseML's at 500 Mbit/s."""
    group = groups.at_rate(runs, groups.RESNET18, 500.0)
    return ratio(group, "time_to_target_s", groups.TOP_K, groups.NETSENSE)
