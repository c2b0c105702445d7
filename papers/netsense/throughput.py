"""Decide NetSenseML's tables 1 and 2: throughput and density on static bottlenecks."""

import pandas as pd

from harness.reporting.analysis import load
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims import rules
from harness.reporting.claims.base import Found, Runs, above, all_of, below, listed, spoken, within
from papers.netsense.groups import (
    DENSE,
    FLOOR,
    METHODS,
    NETSENSE,
    PUBLISHED_WORKERS,
    RATES,
    RESNET18,
    RIVALS,
    TABLE1,
    TOP_K,
    by_pair,
    by_reading,
    compared,
    exposed,
    gathers,
    later,
    means,
    settled,
    settled_ratio,
    telling_throughput,
    told_of,
)

SLOWLY = 2.0  # most growth of throughput at four times the rate
AT_FLOOR = 1.5  # mean density of a run over the floor that counts as near it


def grows_slowly(reading: str) -> rules.Rule:
    """Return the rule that NetSense's throughput on ResNet-18 grows with the link's rate.

    It compares the three rates of table 1, as `reading` (one interpretation of the table) sets the
    runs. Every step up must raise samples/s. From the lowest to the highest rate it may rise at
    most `SLOWLY` times.
    """

    def decide(runs: Runs) -> Found:
        groups, speeds = {}, {}
        for mbit in RATES[RESNET18]:
            groups[mbit] = by_reading(runs, TABLE1, reading, profile__of__rate_mbit=mbit)
            rows = settled(groups[mbit], NETSENSE)
            speeds[mbit] = by_pair(rows, rows.throughput)
        low, middle, high = RATES[RESNET18]
        group = groups[low]
        more = [(middle, low), (high, middle), (high, low)]
        *steps, whole = [compared(group, speeds[one], speeds[other]) for one, other in more]
        found = {f"{mbit:g}": float(each.mean()) for mbit, each in speeds.items()}
        told = f"samples/s at Mbit/s: {listed(found)}; {spoken(whole)} times as much; "
        told += f"slowly is up to {SLOWLY:g}"
        holds = all_of([*map(above, steps), within(whole, 1.0, SLOWLY)])
        return Found(holds, told, exposed(group))

    return decide


def highest_throughput(experiment: str, mbit: float) -> rules.Rule:
    """Return the rule that NetSenseML has the highest throughput of the paper's three methods."""

    def decide(runs: Runs) -> Found:
        group = telling_throughput(runs, experiment, mbit)
        told = f"samples/s: {listed(means(settled(group, *METHODS)))}"
        over = [settled_ratio(group, NETSENSE, rival) for rival in RIVALS]
        return Found(all_of(map(above, over)), told, f"{NETSENSE} {rules.sends(group, NETSENSE)}")

    return decide


def top_k_wins(experiment: str, mbit: float, wins: bool) -> rules.Rule:
    """Return the rule that TopK-0.1 beats AllReduce in throughput, or loses if not `wins`."""

    def decide(runs: Runs) -> Found:
        group = telling_throughput(runs, experiment, mbit)
        found = settled_ratio(group, TOP_K, DENSE)
        told = f"{spoken(found)} times; {gathers(group)}"
        row = group.rows(TOP_K).iloc[0]
        reason = f"its communication is {row.volume_ratio:.3g} of allreduce's by volume alone"
        if row.workers < PUBLISHED_WORKERS:
            reason += f"; workers={PUBLISHED_WORKERS} is the paper's network"
        elif wins:
            reason += "; the paper's AllReduce is at half of what a ring of its links allows there"
        return Found(above(found) if wins else below(found), told, reason)

    return decide


def gains_over_top_k(runs: Runs) -> Found:
    """Decide whether NetSenseML has about 1.55 to 9.84 times TopK-0.1's throughput."""
    found: dict[str, pd.Series] = {}
    for experiment, rates in RATES.items():
        for mbit in rates:
            group = telling_throughput(runs, experiment, mbit)
            rows = settled(group, NETSENSE, TOP_K)
            ours, theirs = (rows[rows.method == method] for method in (NETSENSE, TOP_K))
            speeds = [by_pair(each, each.throughput) for each in (ours, theirs)]
            found[f"{experiment.split('_')[1]} {mbit:g}"] = speeds[0] / speeds[1]
    every = pd.DataFrame(found)
    low, high = (group.spread(each) for each in (every.min(axis=1), every.max(axis=1)))
    told = f"{low.mean:.3g} to {high.mean:.3g} times: {told_of(found)}"
    return Found(all_of([_about(low, 1.55), _about(high, 9.84)]), told, gathers(group))


def _about(found: Ratio, published: float) -> bool | None:
    return within(found, published / rules.FACTOR, published * rules.FACTOR)


def at_floor(reading: str) -> rules.Rule:
    """Return the rule that the mean density of NetSenseML stays near its floor at every rate."""

    def decide(runs: Runs) -> Found:
        asked, near = {}, []
        for mbit in RATES[RESNET18]:
            group = by_reading(runs, TABLE1, reading, profile__of__rate_mbit=mbit)
            rows = group.rows(NETSENSE)
            steps = [load.steps(path) for path in rows.path]
            ratio = by_pair(rows, (later(table).density.mean() for table in steps))
            asked[f"{mbit:g}"] = ratio
            near.append(below(group.spread(ratio), AT_FLOOR * FLOOR))
        told = f"mean ratio at Mbit/s: {told_of(asked)}; near the floor is up to {AT_FLOOR:g} times"
        told += "; below 0.1 twice as many entries are sent, as float16"
        return Found(all_of(near), told, "it rises again wherever an exchange was fast")

    return decide
