"""Decide NetSenseML's figures 7 and 8: throughput while the rate falls or flows compete."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from harness.reporting.analysis import metrics, timeseries
from harness.reporting.claims import rules
from harness.reporting.claims.base import Found, Group, Runs, above, all_of, below, spoken
from papers.netsense.groups import (
    CONTENDED,
    DEGRADING,
    METHODS,
    NETSENSE,
    RIVALS,
    WITHOUT,
    by_pair,
    by_reading,
    compared,
    exposed,
    told_of,
)

STABLE = 0.8  # least share of its highest throughput that a stable method keeps later
FALLS = 0.6  # share of its highest throughput that a falling method goes below
PARTS = 10  # parts of the compared time, as figure 7 has ten rates
WINDOW_S = 10.0  # of figure 8's throughput: the shortest time that flows stay or are away


def stable_while_degrading(reading: str) -> rules.Rule:
    """Return the rule that NetSenseML keeps `STABLE` of its throughput while the rate falls."""

    def decide(runs: Runs) -> Found:
        group = by_reading(runs, DEGRADING, reading)
        found = _over_parts(group, _kept)
        told = f"least after the highest part, over it: {told_of(found)}; stable is {STABLE:g}"
        return Found(above(group.spread(found[NETSENSE]), STABLE), told, exposed(group))

    return decide


def others_fall(runs: Runs) -> Found:
    """Decide whether TopK-0.1 and AllReduce fall below `FALLS` of throughput as the rate falls."""
    group = by_reading(runs, DEGRADING, WITHOUT)
    found = _over_parts(group, _kept)
    told = f"least after the highest part, over it: {told_of(found)}; falling is {FALLS:g}"
    falls = [below(group.spread(found[rival]), FALLS) for rival in RIVALS]
    rate = timeseries.planned_rate(group.links(NETSENSE)).planned_mbit
    when = f"in the time compared the rate falls from {rate.max():.3g} to {rate.min():.3g} Mbit/s"
    return Found(all_of(falls), told, when)


def slow_at_first(reading: str) -> rules.Rule:
    """Return the rule that NetSenseML is slower in the first part than in the mean of the rest."""

    def decide(runs: Runs) -> Found:
        group = by_reading(runs, DEGRADING, reading)
        first = _over_parts(group, lambda parts: float(parts[0]))[NETSENSE]
        rest = _over_parts(group, lambda parts: float(parts[1:].mean()))[NETSENSE]
        found = compared(group, first, rest)
        told = f"samples/s: {first.mean():.3g} at first, then {rest.mean():.3g}"
        told += f", {spoken(found)} times"
        return Found(below(found), told, "its start-up is over after few exchanges")

    return decide


def steady_and_higher(reading: str) -> rules.Rule:
    """Return the rule that NetSenseML is the fastest and the steadiest while flows compete."""

    def decide(runs: Runs) -> Found:
        group = by_reading(runs, CONTENDED, reading)
        means = _over_parts(group, lambda parts: float(parts.mean()), WINDOW_S)
        spreads = _over_parts(group, lambda parts: float(parts.std() / parts.mean()), WINDOW_S)
        higher = [above(compared(group, means[NETSENSE], means[m])) for m in RIVALS]
        steadier = [below(compared(group, spreads[NETSENSE], spreads[m])) for m in RIVALS]
        told = f"samples/s: {told_of(means)}; spread over the mean: {told_of(spreads)}"
        steadiest = min(spreads, key=lambda method: float(spreads[method].mean()))
        reason = f"steadiest is {steadiest}; {exposed(group)}"
        return Found(all_of([*higher, *steadier]), told, reason)

    return decide


def _over_parts(
    group: Group, measure: Callable[[np.ndarray], float], window_s: float | None = None
) -> dict[str, pd.Series]:
    """Return `measure` of the samples/s per part of the compared time, by method and pair.

    The time ends when the first run is done or the rate stops falling, so all methods see the same
    network. It has `PARTS` parts, or as many as last `window_s`.
    """
    steps = group.steps(*METHODS)
    end_s = min(metrics.total_time_s(each) for found in steps.values() for each in found)
    lasts_s = group.rows(NETSENSE).conditions.iloc[0].get("profile.step_s", float("inf"))
    end_s = min(end_s, PARTS * float(lasts_s))
    parts = max(2, int(end_s / window_s)) if window_s else PARTS
    cuts = np.linspace(0, end_s, parts + 1)
    return {
        method: by_pair(group.rows(method), (measure(_between(each, cuts)) for each in found))
        for method, found in steps.items()
    }


def _between(steps: pd.DataFrame, cuts: np.ndarray) -> np.ndarray:
    by_step = steps.groupby("step")
    ends = np.concatenate([[0.0], by_step.time_s.max()])
    done = np.concatenate([[0.0], by_step.samples.sum().cumsum()])
    return np.diff(np.interp(cuts, ends, done)) / np.diff(cuts)


def _kept(parts: np.ndarray) -> float:
    """Return the smallest value from the highest part on, over the highest."""
    top = int(parts.argmax())
    return float(parts[top:].min() / parts[top])
