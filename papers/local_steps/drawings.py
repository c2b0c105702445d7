"""Draw the figures on local steps: utilisation, required rate, and time to a target by rate."""

from collections.abc import Callable
from functools import partial
from math import inf, nan

import pandas as pd

from harness.reporting.analysis import statistics
from harness.reporting.claims.base import Runs
from harness.reporting.figures.rates import needed_rates, over_rates, times_over_rates
from harness.reporting.figures.theme import Figure, NothingToDraw
from papers.local_steps.claims import (
    GRID,
    NEEDED,
    PAPER,
    RATES,
    TRAINED,
    needed_mbit,
    printed,
    steps_of,
    utilisation,
)

PUBLISHED = {"ddp H=1": "all-reduce", "diloco H=1": "DiLoCo, H = 1", "diloco H=8": "DiLoCo, H = 8",
             "diloco H=32": "DiLoCo, H = 32", "diloco H=128": "DiLoCo, H = 128"}  # fmt: skip
OF = "30,846,720 parameters in float32, four workers"


def _utilisation(table: pd.DataFrame) -> Figure:
    """Draw utilisation over rates: lines from replays, points measured on four L40S."""
    runs, lines, measured = _runs(table), {}, {}
    for method, name in PUBLISHED.items():
        steps = steps_of(method)
        lines[name] = pd.Series({rate: utilisation(runs, rate, steps) for rate in RATES})
        if len(points := _measured(method)):
            measured[name] = points
    return over_rates(lines, measured, "share of a step that is computation",
                      f"{OF}; points: four L40S over tbf")  # fmt: skip


def _runs(table: pd.DataFrame) -> Runs:
    return Runs(table, PAPER.workers, scale="")


def _measured(method: str) -> pd.Series:
    found = {}
    for rate in (50, 200, 1000, 5000):
        cell = printed("dm_cu_grid", method=method, network=f"{rate} Mbit/s")
        if "compute_utilisation" in cell:
            found[float(rate)] = float(cell["compute_utilisation"])
    return pd.Series(found)


def _needed(table: pd.DataFrame) -> Figure:
    """Draw the rate that each share of computation needs; omit it if no rate is enough."""
    runs, lines = _runs(table), {}
    for method in list(PUBLISHED)[1:]:
        steps = steps_of(method)
        assert steps is not None
        found = {100 * share: needed_mbit(runs, steps, share) for share in NEEDED}
        lines[PUBLISHED[method]] = pd.Series(found).replace(inf, nan)
    return needed_rates(lines, "share of a step that is to be computation (%)",
                        OF)  # fmt: skip


def _to_target(experiment: str, table: pd.DataFrame) -> Figure:
    """Draw each method's mean time to the target over rates, with its 95 % interval.

    Only seeds that every method has at every rate count. A rate has no point where a run misses the
    target. Raise `NothingToDraw` without runs.
    """
    rows = table[table.experiment == experiment]
    if rows.empty:
        raise NothingToDraw(f"no runs of {experiment}")
    rates = rows.conditions.map(lambda told: float(told["profile.rate_mbit"]))
    seeds = [set(each.seed) for _, each in rows.groupby(["method", rates])]
    rows = rows[rows.seed.isin(set.intersection(*seeds))].assign(rate_mbit=rates)
    lines: dict[str, pd.DataFrame] = {}
    notes: dict[str, str] = {}
    for method, of_method in rows.groupby("method"):
        by_rate = {rate: _mean(each) for rate, each in of_method.groupby("rate_mbit")}
        lines[str(method)] = pd.DataFrame(by_rate, index=["mean_s", "low_s", "high_s"]).T
        met = of_method.groupby("rate_mbit").reached.sum()
        if met.min() < (pairs := of_method.seed.nunique()):
            told = f"{met.min():.0f} to {met.max():.0f}" if met.max() > met.min() else met.min()
            notes[str(method)] = f"{told} of {pairs} reach it"
    said = f"{rows.metric.iloc[0]} {rows.target.iloc[0]:g}, {rows.seed.nunique()} seeds"
    title = f"{experiment}: {said}; larger: first at that rate"
    return times_over_rates(lines, "time to the target (emulated s)", title, notes)


def _mean(rows: pd.DataFrame) -> tuple[float, float, float]:
    if not rows.reached.astype(bool).all():
        return nan, nan, nan
    found = statistics.interval(rows.time_to_target_s)
    return found.mean, found.low, found.high


DRAWINGS: dict[str, Callable[[pd.DataFrame], Figure]] = {
    f"{GRID}-utilisation": _utilisation,
    f"{GRID}-required_rate": _needed,
    **{f"{name}-time_to_target": partial(_to_target, name) for name in TRAINED},
}
