"""The answer of a race in words: who is first, by how much, what is undecided, and regret."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from harness.advise import race
from harness.advise.race import Lead, Times
from harness.reporting.analysis import statistics
from harness.reporting.analysis.decision import factor

MOST_FINALISTS = 3  # beside dense: runs over packets take as long as training does


class Advice(NamedTuple):
    """The method with the lowest mean time, and the others relative to it, the nearest first."""

    first: str | None  # None: no method reaches the target in every pair
    leads: dict[str, Lead]  # of those that reach it, by method
    undecided: list[str]  # methods of all pairs that may be as soon as the first


def answered(times: Mapping[str, Times]) -> Advice:
    """Rank all methods by their times. A dropped method counts with the pairs it ran."""
    most = max(map(len, times.values()), default=0)
    first = race.leader({name: each for name, each in times.items() if len(each) == most})
    if first is None:
        return Advice(None, {}, [])
    leads = {
        name: race.lead(each, times[first])
        for name, each in times.items()
        if name != first and race.reached(each)
    }
    order = sorted(leads, key=lambda name: (leads[name].mean, name))
    near = [name for name in order if leads[name].pairs == most and not leads[name].sure]
    return Advice(first, {name: leads[name] for name in order}, near)


def finalists(answer: Advice, baseline: str) -> list[str]:
    """Return the first, those that may be as soon or else the next, and the dense method."""
    if answer.first is None:
        return []
    others = [name for name in answer.leads if name != baseline]
    near = [name for name in others if name in answer.undecided] or others[:1]
    found = [answer.first, *near][:MOST_FINALISTS]
    return found if baseline in found else [*found, baseline]


def sentences(
    answer: Advice,
    times: Mapping[str, Times],
    goal: str,
    baseline: str,
    packets: Mapping[str, float],
) -> list[str]:
    """Return the answer, its margin to the next and to dense, and what packets say about it."""
    if answer.first is None:
        return [f"No method reaches {goal} with every seed: write a lower target, or more steps."]
    first = answer.first
    contrary = _contrary(first, packets)
    rivals = list(dict.fromkeys([*answer.undecided, *contrary]))
    took = _seconds(times[first])
    if rivals:
        between = _listed([first, *rivals])
        said = [f"Undecided between {between}: {first} reaches {goal} after {took}."]
    else:
        said = [f"{first} reaches {goal} first, after {took}."]
    told = dict.fromkeys([*rivals, *list(answer.leads)[:1], baseline])
    said += [f"{name} takes {_lead(answer.leads[name])}." for name in told if name in answer.leads]
    if baseline != first and baseline not in answer.leads:
        said.append(f"{baseline} does not reach it in every run.")
    return said + _over_packets(packets, contrary)


def _contrary(first: str, packets: Mapping[str, float]) -> list[str]:
    """Return the methods that are sooner than `first` over packets."""
    own = packets.get(first, 0.0)
    return [name for name, time_s in packets.items() if time_s < own]


def _over_packets(packets: Mapping[str, float], contrary: list[str]) -> list[str]:
    if not packets:
        return []
    order = sorted(packets, key=lambda name: packets[name])
    told = ", ".join(f"{name} {_time(packets[name])}" for name in order)
    return [f"Over packets, one pair: {told}{'; another is first there' if contrary else ''}."]


def regret(chosen: Times, every: Mapping[str, Times]) -> tuple[str, float]:
    """Return the best method of `every`, and the chosen one's times over its, less 1."""
    best = race.leader(every)
    if best is None:
        return "", math.nan
    return best, race.lead(chosen, every[best]).mean - 1


def regretted(chosen: str, every: Mapping[str, Times], seeds: str) -> str:
    """Describe the regret of a choice. `seeds` names seeds that did not influence the choice."""
    best, lost = regret(every[chosen], every)
    if not best:
        return f"Regret of {chosen}: unknown, as no method reaches the target with all {seeds}."
    if math.isinf(lost):
        return f"Regret of {chosen}: it misses the target with one of {seeds}; {best} does not."
    return (
        f"Regret of {chosen}: {lost:.1%} against {best}, the best of all {len(every)} by {seeds}."
    )


def _lead(found: Lead) -> str:
    """Format a lead: `1.3 times as long (1.2 to 1.4, 6 pairs)`."""
    ends = "" if math.isnan(found.low) else f"{factor(found.low)} to {factor(found.high)}, "
    return f"{factor(found.mean)} times as long ({ends}{found.pairs} pair{'s' * (found.pairs > 1)})"


def _seconds(times: Times) -> str:
    """Format times: `11 s (9.5 to 12.5, 6 seeds)`."""
    mean, low, high = statistics.interval(pd.Series(times))
    ends = "" if math.isnan(low) else f"{low:.3g} to {high:.3g}, "
    return f"{mean:.3g} s ({ends}{len(times)} seed{'s' * (len(times) > 1)})"


def _time(time_s: float) -> str:
    return f"{time_s:.3g} s" if math.isfinite(time_s) else "not reached"


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
