"""One method over another: ratios paired by seed and network seed, censored times as bounds."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.reporting.analysis import load, metrics, statistics

REACHED = {"time_to_target_s": "reached", "convergence_s": "converged"}  # else a lower bound


class Ratio(NamedTuple):
    """Mean over pairs of a ratio, with its 95 % interval (nan below two pairs).

    Where a time is censored the mean is a bound: `low`, the truth is at least this; `high`, at
    most; `unknown`, both are censored in some pair, or in different ones. A bound has no interval.
    """

    mean: float
    low: float
    high: float
    seeds: int  # pairs of seeds in which both methods have the number
    bound: str = ""
    p: float = float("nan")  # that pairs of no difference are so far apart, by flips of signs


def paired(table: pd.DataFrame, column: str, over: str, under: str) -> Ratio:
    """`column` of method `over` over that of `under`, pair by pair; of rows of one setting.

    A ratio with 0 below is infinite, 0 over 0 is left out like what is nan.
    """
    above, below = (_of(table, method) for method in (over, under))
    both = above.index.intersection(below.index)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (above[column].loc[both] / below[column].loc[both]).dropna()
        found = statistics.interval(values)
        p = statistics.sign_flip_p((above[column] - below[column]).loc[values.index])
    sides = set()
    if column in REACHED:
        met = REACHED[column]
        sides |= {"low"} if not above[met].loc[values.index].all() else set()
        sides |= {"high"} if not below[met].loc[values.index].all() else set()
    bound = sides.pop() if len(sides) == 1 else "unknown" if sides else ""
    interval = (float("nan"), float("nan")) if bound else (found.low, found.high)
    return Ratio(found.mean, *interval, len(values), bound, p)


def stopped(table: pd.DataFrame, leader: str) -> pd.DataFrame:
    """Rows of one setting with `best` and `best_s` as if stopped when `leader` had its best.

    By pair; rows of pairs without a run of `leader` are left out, and
    what was not yet evaluated by then has nan.
    """
    ends = _of(table, leader).best_s
    kept = table[pd.MultiIndex.from_frame(table[load.PAIR]).isin(ends.index)]
    rows: Any = kept.itertuples()
    found = [
        metrics.best_value(load.evaluations(row.path), row.metric, ends[row.seed, row.network_seed])
        for row in rows
    ]
    values = pd.DataFrame(found, columns=["best", "best_s"], index=kept.index)
    return kept.assign(best=values.best, best_s=values.best_s)


def scaling(table: pd.DataFrame) -> pd.DataFrame:
    """Samples/s over workers: throughput, of_linear by experiment, world, method and workers.

    of_linear is throughput per worker over that with the fewest workers, 1 where scaling is
    linear; means over seeds. Runs are compared that differ in workers, method and seeds alone.
    """
    alike = [repr({k: v for k, v in told.items() if k != "workers"}) for told in table.conditions]
    keys = ["experiment", "world", "alike", "method", "workers"]
    found = table.assign(alike=alike).groupby(keys, sort=False).throughput.mean().reset_index()
    found = found.sort_values(keys, ignore_index=True)
    of_worker = found.throughput / found.workers
    fewest = of_worker.groupby([found[key] for key in keys[:-1]]).transform("first")
    return found.assign(of_linear=of_worker / fewest).drop(columns="alike")


def _of(table: pd.DataFrame, method: str) -> pd.DataFrame:
    rows = table[table.method == method].set_index(load.PAIR)
    if rows.index.has_duplicates:
        several = sorted(set(rows.index[rows.index.duplicated()]))
        raise ValueError(f"{method} must have one run a pair of seeds, has several of {several}")
    return rows
