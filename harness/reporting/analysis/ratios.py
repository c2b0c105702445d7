"""Ratios of two methods, paired by seed and network seed; censored times become bounds."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.reporting.analysis import load, metrics, statistics

LEAST_KEPT = 2 / 3  # of the seeds that two methods share
REACHED = {"time_to_target_s": "reached", "convergence_s": "converged"}  # else a bound


class SeedBlock(NamedTuple):
    """Methods and pairs of seeds whose means may be compared: each method has each pair."""

    methods: frozenset[Any]
    pairs: frozenset[Any]  # of seed and network seed; empty if no two methods share one
    of: int  # pairs that any method has

    def rows(self, table: pd.DataFrame, by: str = "method") -> pd.DataFrame:
        """Return the rows of `table` in the block."""
        return table[table[by].isin(list(self.methods)) & _pairs(table).isin(list(self.pairs))]


def seed_block(table: pd.DataFrame, by: str = "method") -> SeedBlock:
    """Return the block of `table`, rows of one setting, that keeps most runs.

    It drops at most a third of the seeds that two methods share, so that a method whose sweep has
    just begun does not hide the results of the others. `by` is the column of the method.
    """
    pairs = {method: frozenset(_pairs(rows)) for method, rows in table.groupby(by)}
    every = list(pairs.values())
    candidates = {one & other for one in every for other in every}
    candidates.add(frozenset.intersection(*every))
    least = min(2, len(every))  # methods; one alone is no comparison
    blocks = [
        SeedBlock(methods, seeds, len(frozenset().union(*every)))
        for seeds in candidates
        if len(methods := frozenset(each for each in pairs if seeds <= pairs[each])) >= least
    ]
    most = max(len(block.pairs) for block in blocks)
    return max((one for one in blocks if len(one.pairs) >= LEAST_KEPT * most), key=_standing)


def shared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `table` whose pair of seeds all its methods have."""
    pairs = _pairs(table)
    return table[table.method.groupby(pairs).transform("nunique") == table.method.nunique()]


def _standing(block: SeedBlock) -> tuple[int, int, list[str]]:
    """Return a sort key: most runs first, then most methods, then any fixed order."""
    runs = len(block.methods) * len(block.pairs)
    return runs, len(block.methods), sorted(map(str, block.pairs), reverse=True)


def _pairs(table: pd.DataFrame) -> pd.Series:
    """Return (seed, network_seed) of each row."""
    seeds = list(zip(*(table[name] for name in load.PAIR), strict=True))
    return pd.Series(seeds, index=table.index, dtype=object)


class Ratio(NamedTuple):
    """Mean over pairs of a ratio, with its 95 % interval (NaN below two pairs).

    If a time is censored the mean is a bound without interval: `low` (the truth is at least this),
    `high` (at most this), or `unknown` (times of both methods are censored).
    """

    mean: float
    low: float
    high: float
    seeds: int  # pairs of seeds in which both methods have the number
    bound: str = ""
    p: float = float("nan")  # of the t test on log ratios


def paired(table: pd.DataFrame, column: str, over: str, under: str) -> Ratio:
    """Return `column` of method `over` divided by that of `under`, paired; rows of one setting.

    x / 0 is infinite; 0 / 0 and NaN are dropped. Raise ValueError for two runs of a pair.
    """
    above, below = (_of(table, method) for method in (over, under))
    both = above.index.intersection(below.index)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (above[column].loc[both] / below[column].loc[both]).dropna()
        found = statistics.interval(values)
    p = statistics.log_ratio_p(values)
    sides = set()
    if column in REACHED:
        met = REACHED[column]
        sides |= {"low"} if not above[met].loc[values.index].all() else set()
        sides |= {"high"} if not below[met].loc[values.index].all() else set()
    bound = sides.pop() if len(sides) == 1 else "unknown" if sides else ""
    interval = (float("nan"), float("nan")) if bound else (found.low, found.high)
    return Ratio(found.mean, *interval, len(values), bound, p)


def bracketed(table: pd.DataFrame, over: str, under: str, found: Ratio) -> Ratio:
    """Return `found`, a ratio of times to target, with an interval that includes their brackets.

    A target is met between two evaluations: after before_target_s, at time_to_target_s at the
    latest. A bound, and runs whose brackets are not known, stay as they are.
    """
    if found.bound or "before_target_s" not in table:
        return found
    above, below = (_of(table, method) for method in (over, under))
    with np.errstate(divide="ignore"):
        least = (above.before_target_s / below.time_to_target_s).dropna()
        most = (above.time_to_target_s / below.before_target_s).dropna()
    if least.empty or most.empty:
        return found
    low, high = statistics.interval(least).low, statistics.interval(most).high
    if not np.isfinite(most).all():  # met at the first evaluation: perhaps at once
        high = float("inf")
    return found._replace(low=min(found.low, low), high=max(found.high, high))


def stopped(table: pd.DataFrame, leader: str) -> pd.DataFrame:
    """Return `table` with `best` and `best_s` up to the time at which `leader` had its best.

    Rows are of one setting and compared by pair of seeds. Pairs without a run of `leader` are
    dropped; a run without evaluations by then has NaN.
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
    """Return throughput and of_linear by experiment, world, method and workers.

    of_linear is throughput per worker over that with the fewest workers: 1 if scaling is linear.
    Means are over the seeds that all numbers of workers have. Compared runs differ only in workers,
    method and seeds.
    """
    alike = [repr({k: v for k, v in told.items() if k != "workers"}) for told in table.conditions]
    keys = ["experiment", "world", "alike", "method", "workers"]
    groups = table.assign(alike=alike).groupby(keys[:-1], sort=False)
    compared = pd.concat([seed_block(rows, "workers").rows(rows, "workers") for _, rows in groups])
    found = compared.groupby(keys, sort=False).throughput.mean().reset_index()
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
