"""Rules that several papers claim, each built by a function here, with their margins.

A `Rule` decides a claim from `Runs`, and raises NoSuchRuns if they lack a method. "The best" of
several methods has the largest mean; ratios paired by seed then decide the comparison.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from harness.records.metrics import lower_is_better
from harness.reporting.analysis import load
from harness.reporting.analysis.metrics import quality
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims.base import (
    Found,
    Group,
    Runs,
    all_of,
    below,
    listed,
    spoken,
    within,
)
from harness.reporting.claims.base import above as is_above

FACTOR = 1.5  # a published factor is met within this factor, either way
ABOUT_EQUAL = 1.2  # methods within this factor are equal
FAR = 0.1  # difference of accuracy from that without compression
NEAR = 0.02  # largest difference of accuracy that counts as near
BROKEN = 0.5  # largest share of the dense accuracy that counts as broken

Rule = Callable[[Runs], Found]
Methods = tuple[str, ...]


def factor(experiment: str, methods: Methods, under: str | Methods, published: float) -> Rule:
    """Return a rule: the best of `methods` has `published` times the speed-up of `under`.

    If `under` names several methods, the slowest is the rival: a published "up to" compares the
    best with the slowest.
    """

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment)
        best = group.best("speedup", *methods)
        rival = under if isinstance(under, str) else group.least("speedup", *under)
        found = group.ratio("speedup", best, rival)
        told = f"{best} {spoken(found)} times {rival}"
        if not np.isfinite(found.mean):
            return Found(False, told, f"{rival} did not train, so that there is no factor")
        side = "more" if found.mean > published else "less"
        side = "the other way than" if (found.mean - 1) * (published - 1) < 0 else f"{side} than"
        reason = f"{side} published: {limits(group, best, rival)}"
        return Found(meets(found, published), told, reason)

    return decide


def is_about(value: float, published: float) -> bool:
    """Return True if `value` is within FACTOR of the published factor."""
    return published / FACTOR <= value <= published * FACTOR


def meets(found: Ratio, published: float) -> bool | None:
    """Return True if a ratio is within FACTOR of `published` and on the same side of 1.

    Return False if the whole interval lies outside, None if undecided.
    """
    low, high = published / FACTOR, published * FACTOR
    return within(found, max(1.0, low), high) if published > 1 else within(found, low, min(1, high))


def about_equal(experiment: str, column: str, methods: Methods, others: Methods) -> Rule:
    """Return a rule: the best of `methods` is within ABOUT_EQUAL times the best of `others`."""

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment)
        best, rival = group.best(column, *methods), group.best(column, *others)
        found = group.ratio(column, best, rival)
        told = f"{column}: {best} {spoken(found)} times {rival}; equal is up to {ABOUT_EQUAL:g}"
        holds = within(found, 1 / ABOUT_EQUAL, ABOUT_EQUAL)
        return Found(holds, told, sends_both(group, best, rival))

    return decide


def highest(experiment: str, column: str, method: str, others: Methods) -> Rule:
    """Return a rule: `method` has a larger `column` than each of `others`, paired by seed."""

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment)
        found = group.mean(column, method, *others)
        best = group.best(column, method, *others)
        reason = sends_both(group, best, method)
        over = [group.ratio(column, method, other) for other in others if other != method]
        return Found(all_of(map(is_above, over)), f"{column}: {listed(found)}", reason)

    return decide


def above(experiment: str, column: str, methods: Methods, least: float) -> Rule:
    """Return a rule: `column` of each of `methods` is more than `least`."""

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment)
        found = group.mean(column, *methods)
        worst = group.least(column, *methods)
        each = [is_above(group.over_pairs(column, method), least) for method in methods]
        return Found(all_of(each), f"{column}: {listed(found)}", limits(group, worst))

    return decide


def loses(experiment: str, method: str) -> Rule:
    """Return a rule: `method` ends more than FAR below the accuracy without compression."""

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment)
        found = accuracies(group, method, group.dense)
        told = f"accuracy: {listed(found)}; far is {FAR:g}"
        lost = accuracy_by_pair(group, group.dense) - accuracy_by_pair(group, method)
        holds = is_above(group.spread(lost), FAR)
        return Found(holds, told, easy(group), loss=holds is True)

    return decide


def breaks(experiment: str, method: str) -> Rule:
    """Return a rule: `method` ends below BROKEN times the accuracy without compression."""

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment)
        share = share_of_accuracy(group, method)
        told = f"accuracy {spoken(share)} of {group.dense}'s; broken is {BROKEN:g} or less"
        holds = below(share, BROKEN)
        return Found(holds, told, easy(group), loss=holds is True)

    return decide


def ordered(experiment: str, methods: Methods | Callable[[Group], Methods]) -> Rule:
    """Return a rule: the first of `methods` has the lowest mean density, the second the highest."""

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment)
        named = methods if isinstance(methods, tuple) else methods(group)
        found = group.mean("density", *named)
        ranked = sorted(named, key=lambda method: found[method])
        reason = f"from the lowest: {', '.join(ranked)}"
        least, most, *rest = named
        pairs = [(most, least), *((other, least) for other in rest)]
        pairs += [(most, other) for other in rest]
        holds = all_of(is_above(group.ratio("density", *pair)) for pair in pairs)
        return Found(holds, listed(found), reason)

    return decide


def accuracies(group: Group, *methods: str) -> dict[str, float]:
    """Return the mean final accuracy by method; a diverged run counts as 0."""
    return {method: float(accuracy_by_pair(group, method).mean()) for method in methods}


def accuracy_by_pair(group: Group, method: str) -> pd.Series:
    """Return a method's final accuracy by pair of seeds; a diverged run counts as 0."""
    group.seen.columns.add("final")
    rows = group.rows(method).set_index(load.PAIR)
    return rows.final.mask(rows.diverged, 0.0)


def quality_by_pair(group: Group, method: str) -> pd.Series:
    """Return a method's final quality by pair of seeds; a diverged run counts as 0.

    Quality is the inverse of a metric where lower is better, such as perplexity.
    """
    group.seen.columns.add("final")
    rows = group.rows(method).set_index(load.PAIR)
    return rows.goal.mask(rows.diverged, 0.0)


def quality_named(group: Group, *methods: str) -> str:
    """Format the mean final quality of `methods` after the metric's name."""
    metric = group.rows(*methods).metric.iloc[0]
    name = f"inverse {metric}" if lower_is_better(metric) else metric
    return f"{name}: {listed({m: float(quality_by_pair(group, m).mean()) for m in methods})}"


def quality_lost(group: Group, method: str, rival: str) -> Ratio:
    """Return how far `method` ends below `rival`, pair by pair, as a `Ratio`.

    It is a difference of accuracy, or a relative loss where the metric is better if lower.
    """
    one, other = (quality_by_pair(group, each) for each in (rival, method))
    inverse = lower_is_better(group.rows(rival).metric.iloc[0])
    return group.spread(1 - other / one if inverse else one - other)


def share_of_accuracy(group: Group, method: str) -> Ratio:
    """Return the final accuracy divided by that without compression, paired by seed."""
    rows = group.rows(method, group.dense)
    group.seen.columns.add("final")
    whole = rows.assign(final=rows.final.mask(rows.diverged, 0.0))
    return group.paired(whole, "final", method, group.dense)


def limits(group: Group, method: str, rival: str | None = None) -> str:
    """Explain how much `method` could gain over `rival` (default: the dense method).

    A method can save communication, but not the rival's computation.
    """
    rival = rival or group.dense
    rows = group.rows(rival)
    most = (rows.iteration_s / rows.compute_s).mean()
    told = f"a step of {rival} is {most:.3g} computations long, and no method can save more"
    if method in (group.dense, rival):
        return told
    better = _mean_quality(group, method) / _mean_quality(group, group.dense)
    return f"{told}; {method} {sends(group, method)} and {better:.3g} times its quality"


def sends(group: Group, method: str) -> str:
    """Format a method's density, its share of a dense ring's bytes, and its throughput."""
    row = group.rows(method)[["density", "volume_ratio", "normalised_throughput", "workers"]].mean()
    return (
        f"sends {row.volume_ratio:.3g} of {group.dense}'s bytes at density {row.density:.3g} on "
        f"{row.workers:g} workers, has {row.normalised_throughput:.3g} times its throughput"
    )


def sends_both(group: Group, one: str, other: str) -> str:
    """Format density, bytes and throughput of two methods."""
    return "; ".join(f"{method} {sends(group, method)}" for method in (one, other))


def easy(group: Group) -> str:
    """Explain that this model and data lose less quality than the paper's."""
    row = group.rows(group.dense).iloc[0]
    return f"{row.model} on {row.dataset} loses less than the paper's model on its data"


def _mean_quality(group: Group, method: str) -> float:
    rows = group.rows(method)
    return float(np.mean([quality(m, x) for m, x in zip(rows.metric, rows.final, strict=True)]))
