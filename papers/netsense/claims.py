"""NetSenseML's claims (Wang et al., 2025), in the order of its figures and tables.

netsense is the published rule, netsense_bdp_gain=2 is ours; TopK-0.1 sends int64 positions, as the
paper's volumes have it. The list is at the end.
"""

from contextlib import suppress

import numpy as np
import pandas as pd

from harness.reporting.analysis import metrics, ratios, timeseries
from harness.reporting.claims import rules
from harness.reporting.claims.base import (
    Found,
    Group,
    NoSuchRuns,
    PaperClaims,
    Runs,
    above,
    all_of,
    below,
    listed,
    spoken,
)

STABLE = 0.8  # of its highest throughput, in every later part of the time compared
FALLS = 0.6  # of it, or less
PARTS = 10  # in which the time compared is cut
SLOWLY = 2.0  # times as much at four times the rate, or less
AT_FLOOR = 1.5  # times the floor, as a mean over a run

NETSENSE, BDP, DENSE, TOP_K = "netsense", "netsense_bdp_gain=2", "allreduce", "topk_0.1_int64"
METHODS = (NETSENSE, DENSE, TOP_K)
AS_FLOOR, FLOOR = "topk_0.005_int64", 0.005
RESNET18, VGG16 = "netsense_resnet18_static", "netsense_vgg16_static"
TABLE1 = "netsense_table1"  # traffic alone, on the paper's workers
DEGRADING, CONTENDED = "netsense_resnet18_degrading", "netsense_resnet18_contended"
RATES = {RESNET18: (200.0, 500.0, 800.0), VGG16: (2500.0, 5000.0, 10_000.0)}  # Mbit/s
PUBLISHED_WORKERS = 8


def at_rate(runs: Runs, experiment: str, mbit: float) -> Group:
    """Runs at one of `RATES`, which profiles scale to a stand-in's size."""
    return runs.of(experiment, profile__of__rate_mbit=mbit)


def telling_throughput(runs: Runs, experiment: str, mbit: float) -> Group:
    """Runs at one of `RATES`; of ResNet18 those on the paper's workers, where there are any."""
    if experiment == RESNET18:
        with suppress(NoSuchRuns):
            return at_rate(runs, TABLE1, mbit)
    return at_rate(runs, experiment, mbit)


def _groups(runs: Runs, experiment: str) -> dict[float, Group]:
    return {mbit: at_rate(runs, experiment, mbit) for mbit in RATES[experiment]}


def first_to_target(experiment: str, mbit: float) -> rules.Rule:
    """NetSenseML, of the paper's three."""

    def decide(runs: Runs) -> Found:
        group = at_rate(runs, experiment, mbit)
        rows = group.rows(*METHODS)
        missed = sorted(set(rows[~rows.reached].method))
        first = group.least("time_to_target_s", *METHODS)
        told = f"s: {listed(group.mean('time_to_target_s', *METHODS))}"
        told += f"; bounds, not reached in some run: {', '.join(missed)}" if missed else ""
        able = [m for m in METHODS if m not in (NETSENSE, *missed)]
        over = [group.ratio("time_to_target_s", NETSENSE, m) for m in able]
        holds = all_of([NETSENSE not in missed, *map(below, over)])
        reason = f"{first} is; {NETSENSE} {rules.sends(group, NETSENSE)}"
        return Found(holds, told, reason)

    return decide


def five_times(runs: Runs) -> Found:
    """Time to target of TopK-0.1 over NetSenseML's at 500 Mbit/s."""
    group = at_rate(runs, RESNET18, 500.0)
    found = group.ratio("time_to_target_s", TOP_K, NETSENSE)
    holds = rules.meets(found, 5)
    reason = f"the paper's own table gives 2.98 in time, 5.16 in throughput; {_gathers(group)}"
    return Found(holds, f"{spoken(found)} times as long", reason)


def smoothest(runs: Runs) -> Found:
    """Test smoothness by how far accuracy falls between evaluations, summed over a run."""
    group = at_rate(runs, RESNET18, 200.0)
    found = {
        method: float(np.mean([_falls(each) for each in group.evaluations(method)]))
        for method in METHODS
    }
    least = min(found, key=lambda method: found[method])
    told = f"accuracy lost between evaluations: {listed(found, 2)}"
    return Found(found[NETSENSE] <= found[least], told, f"{least} is smoother")


def _falls(accuracy: pd.Series) -> float:
    return float(-accuracy.diff().clip(upper=0).sum())


def grows_slowly(runs: Runs) -> Found:
    """NetSenseML's throughput with four times the rate."""
    groups = {mbit: telling_throughput(runs, RESNET18, mbit) for mbit in RATES[RESNET18]}
    found = {
        f"{mbit:g}": group.mean("throughput", NETSENSE)[NETSENSE] for mbit, group in groups.items()
    }
    values = list(found.values())
    told = f"samples/s at Mbit/s: {listed(found)}; slowly is up to {SLOWLY:g} times"
    holds = values == sorted(values) and values[-1] <= SLOWLY * values[0]
    return Found(holds, told, f"{values[-1] / values[0]:.3g} times as much")


def highest_throughput(experiment: str, mbit: float) -> rules.Rule:
    """NetSenseML's, of the paper's three."""

    def decide(runs: Runs) -> Found:
        group = telling_throughput(runs, experiment, mbit)
        told = f"samples/s: {listed(group.mean('throughput', *METHODS))}"
        over = [group.ratio("throughput", NETSENSE, m) for m in METHODS if m != NETSENSE]
        return Found(all_of(map(above, over)), told, f"{NETSENSE} {rules.sends(group, NETSENSE)}")

    return decide


def top_k_wins(experiment: str, mbit: float, wins: bool) -> rules.Rule:
    """Throughput of TopK-0.1 over AllReduce's, above 1 where it `wins`."""

    def decide(runs: Runs) -> Found:
        group = telling_throughput(runs, experiment, mbit)
        found = group.ratio("throughput", TOP_K, DENSE)
        told = f"{spoken(found)} times; {_gathers(group)}"
        row = group.rows(TOP_K).iloc[0]
        reason = f"its communication is {row.volume_ratio:.3g} of allreduce's by volume alone"
        if row.workers < PUBLISHED_WORKERS:
            reason += f"; workers={PUBLISHED_WORKERS} is the paper's network"
        elif wins:
            reason += "; the paper's AllReduce is at half of what a ring of its links allows there"
        return Found(above(found) if wins else below(found), told, reason)

    return decide


def _gathers(group: Group) -> str:
    """Say what an all-gather of TopK-0.1 costs over a ring, here and on the paper's workers."""
    row = group.rows(TOP_K).iloc[0]
    ring = 2 * (row.workers - 1) / row.workers
    told = (
        f"an all-gather sends P - 1 = {row.workers - 1} pieces, a ring {ring:.3g} gradients: TopK "
        f"sends {row.volume_ratio:.3g} of allreduce's bytes on {row.workers} workers"
    )
    if row.workers == PUBLISHED_WORKERS:
        return told
    published = row.volume_ratio * PUBLISHED_WORKERS / row.workers
    return f"{told} and would send {published:.3g} on {PUBLISHED_WORKERS}"


def more_accurate(runs: Runs) -> Found:
    """Competitors are stopped when NetSenseML has its best accuracy, as the paper says."""
    told, others = [], []
    for mbit in (200.0, 500.0):
        group = at_rate(runs, RESNET18, mbit)
        found = stopped(group)
        late = [m for m in METHODS if np.isnan(found[m])]
        told.append(f"{mbit:g} Mbit/s: {listed(found)}")
        told[-1] += f" ({', '.join(late)} not yet evaluated)" if late else ""
        others += [f"{m} at {mbit:g}" for m in METHODS if not found[m] <= found[NETSENSE]]
    return Found(not others, "; ".join(told), f"more accurate: {', '.join(others)}")


def stopped(group: Group) -> dict[str, float]:
    """Best accuracy of each method until NetSenseML had its own, mean over seeds."""
    found = ratios.stopped(group.rows(*METHODS), NETSENSE)
    if found.best[found.method == NETSENSE].isna().any():
        raise NoSuchRuns(f"no runs of {NETSENSE} with evaluations in {group.experiment}")
    return {method: float(found[found.method == method].best.mean()) for method in METHODS}


def stable_while_degrading(runs: Runs) -> Found:
    """NetSenseML keeps its throughput while the rate falls."""
    group = runs.of(DEGRADING)
    kept = {m: _kept(parts) for m, parts in _in_parts(group).items()}
    told = f"least after the highest part, over it: {listed(kept, 2)}; stable is {STABLE:g}"
    return Found(kept[NETSENSE] >= STABLE, told, _exposed(group))


def _exposed(group: Group) -> str:
    """Say why NetSenseML's throughput follows the network."""
    rows = group.rows(NETSENSE)
    share = (rows.exposed_s / rows.iteration_s).mean()
    told = f"{NETSENSE} waits for the network in {share:.2g} of its time"
    return f"{told}, it {rules.sends(group, NETSENSE)}"


def others_fall(runs: Runs) -> Found:
    """TopK-0.1 and AllReduce while the rate falls."""
    group = runs.of(DEGRADING)
    kept = {m: _kept(parts) for m, parts in _in_parts(group).items() if m != NETSENSE}
    told = f"least after the highest part, over it: {listed(kept, 2)}; falling is {FALLS:g}"
    return Found(max(kept.values()) <= FALLS, told, _seen(group))


def slow_at_first(runs: Runs) -> Found:
    """NetSenseML in the first part, against the mean of the rest."""
    found = _in_parts(runs.of(DEGRADING))[NETSENSE]
    told = f"samples/s: {found[0]:.3g} at first, then {found[1:].mean():.3g}"
    return Found(found[0] < found[1:].mean(), told, "its start-up is over after few exchanges")


def steady_and_higher(runs: Runs) -> Found:
    """Under competing flows: the highest mean, and the least spread over it."""
    group = runs.of(CONTENDED)
    parts = _in_parts(group)
    means = {method: float(found.mean()) for method, found in parts.items()}
    spreads = {method: float(found.std() / found.mean()) for method, found in parts.items()}
    holds = means[NETSENSE] == max(means.values()) and spreads[NETSENSE] == min(spreads.values())
    told = f"samples/s: {listed(means)}; spread over the mean: {listed(spreads, 2)}"
    steadier = min(spreads, key=lambda method: spreads[method])
    reason = f"steadiest is {steadier}; {_exposed(group)}"
    return Found(holds, told, reason)


def _in_parts(group: Group) -> dict[str, np.ndarray]:
    """Samples/s in each of `PARTS` of the time until the first of the three was done, [PARTS].

    The network is the same in this time for all; mean over seeds.
    """
    steps = group.steps(*METHODS)
    end_s = min(metrics.total_time_s(each) for found in steps.values() for each in found)
    cuts = np.linspace(0, end_s, PARTS + 1)
    return {
        method: np.mean([_between(each, cuts) for each in found], axis=0)
        for method, found in steps.items()
    }


def _between(steps: pd.DataFrame, cuts: np.ndarray) -> np.ndarray:
    by_step = steps.groupby("step")
    ends = np.concatenate([[0.0], by_step.time_s.max()])
    done = np.concatenate([[0.0], by_step.samples.sum().cumsum()])
    return np.diff(np.interp(cuts, ends, done)) / np.diff(cuts)


def _kept(parts: np.ndarray) -> float:
    """Least part after the highest, over that."""
    top = int(parts.argmax())
    return float(parts[top:].min() / parts[top])


def _seen(group: Group) -> str:
    """Say which rates the compared time covers."""
    rate = timeseries.planned_rate(group.links(NETSENSE)).planned_mbit
    return f"in the time compared the rate falls from {rate.max():.3g} to {rate.min():.3g} Mbit/s"


def gains_over_top_k(runs: Runs) -> Found:
    """Throughput of NetSenseML over TopK-0.1's: the range over all experiments that there are."""
    found: dict[str, float] = {}
    reason = ""
    for experiment, rates in RATES.items():
        for mbit in rates:
            try:
                group = telling_throughput(runs, experiment, mbit)
                ratio = group.ratio("throughput", NETSENSE, TOP_K)
            except NoSuchRuns:
                continue
            found[f"{experiment.split('_')[1]} {mbit:g}"] = ratio.mean
            reason = _gathers(group)
    if not found:
        raise NoSuchRuns(f"no runs of {NETSENSE} and {TOP_K} in {RESNET18} or {VGG16}")
    low, high = min(found.values()), max(found.values())
    holds = rules.is_about(low, 1.55) and rules.is_about(high, 9.84)
    return Found(holds, f"{low:.3g} to {high:.3g} times: {listed(found)}", reason)


def at_floor(runs: Runs) -> Found:
    """The published rule, at every rate of ResNet18."""
    found = {
        f"{mbit:g}": group.mean("density", NETSENSE)[NETSENSE]
        for mbit, group in _groups(runs, RESNET18).items()
    }
    told = f"mean density at Mbit/s: {listed(found)}; near the floor is up to {AT_FLOOR:g} times"
    reason = "until start-up ends it rises by beta_1 an exchange, which is part of the mean"
    return Found(max(found.values()) <= AT_FLOOR * FLOOR, told, reason)


def is_sooner(column: str, method: str, rival: str) -> rules.Rule:
    """The time in `column` of `method` is less than that of `rival`, at every rate."""

    def decide(runs: Runs) -> Found:
        groups = _groups(runs, RESNET18)
        found = {mbit: group.ratio(column, method, rival) for mbit, group in groups.items()}
        told = ", ".join(f"{spoken(each)} of its time at {mbit:g}" for mbit, each in found.items())
        slower = [m for m, each in found.items() if not below(each)]
        reason = "; ".join(f"at {m:g} {method} {rules.sends(groups[m], method)}" for m in slower)
        return Found(all_of(map(below, found.values())), told, reason)

    return decide


def is_more_accurate(runs: Runs) -> Found:
    """Final accuracy with bdp_gain over that of netsense, at every rate."""
    groups = _groups(runs, RESNET18)
    found = {mbit: group.ratio("final", BDP, NETSENSE) for mbit, group in groups.items()}
    densities = {f"{m:g}": group.mean("density", BDP)[BDP] for m, group in groups.items()}
    told = ", ".join(f"{spoken(each)} times at {mbit:g}" for mbit, each in found.items())
    worse = [f"{mbit:g}" for mbit, each in found.items() if not above(each)]
    told += f"; mean density {listed(densities)}"
    return Found(all_of(map(above, found.values())), told, f"not so at {', '.join(worse)}")


PAPER = PaperClaims("netsenseml", workers=PUBLISHED_WORKERS)
for panel, mbit in zip("abc", RATES[RESNET18], strict=True):
    PAPER.says(
        f"netsense_fig5{panel}",
        f"ResNet18, {mbit:g} Mbit/s: NetSenseML is the first to reach the target",
        first_to_target(RESNET18, mbit),
    )
PAPER.says("netsense_fig5a", "ResNet18, 200 Mbit/s: its curve is the smoothest", smoothest)
PAPER.says("netsense_text_tta", "500 Mbit/s: five times as fast as TopK-0.1", five_times)
for mbit in RATES[VGG16]:
    PAPER.says(
        "netsense_fig6",
        f"VGG16, {mbit:g} Mbit/s: NetSenseML is the first to reach the target",
        first_to_target(VGG16, mbit),
    )
for mbit in RATES[RESNET18]:
    PAPER.says(
        "netsense_table1",
        f"ResNet18, {mbit:g} Mbit/s: NetSenseML has the highest throughput",
        highest_throughput(RESNET18, mbit),
    )
PAPER.says("netsense_table1", "its throughput grows slowly with the rate", grows_slowly)
for mbit, wins in zip(RATES[RESNET18], (True, False, False), strict=True):
    PAPER.says(
        "netsense_table1",
        f"ResNet18, {mbit:g} Mbit/s: TopK-0.1 {'beats' if wins else 'loses to'} AllReduce",
        top_k_wins(RESNET18, mbit, wins),
    )
PAPER.says(
    "netsense_table1",
    "200 and 500 Mbit/s: NetSenseML is the most accurate when it has its best accuracy",
    more_accurate,
)
for mbit in RATES[VGG16]:
    PAPER.says(
        "netsense_table2",
        f"VGG16, {mbit:g} Mbit/s: NetSenseML has the highest throughput",
        highest_throughput(VGG16, mbit),
    )
for mbit in RATES[VGG16]:
    PAPER.says(
        "netsense_table2",
        f"VGG16, {mbit:g} Mbit/s: TopK-0.1 beats AllReduce",
        top_k_wins(VGG16, mbit, wins=True),
    )
PAPER.says("netsense_fig7", "degrading: NetSenseML is slow at first", slow_at_first)
PAPER.says("netsense_fig7", "degrading: then it is stable", stable_while_degrading)
PAPER.says("netsense_fig7", "degrading: TopK-0.1 and AllReduce fall", others_fall)
PAPER.says(
    "netsense_fig8",
    "contended: NetSenseML's throughput is the highest and the steadiest",
    steady_and_higher,
)
PAPER.says(
    "netsense_abstract", "1.55 to 9.84 times the throughput of compression", gains_over_top_k
)
PAPER.says("netsense_alg1", "the published rule stays at its floor, 0.005", at_floor, ours=True)
PAPER.says(
    "netsense_alg1",
    "it reaches the target before a fixed density of 0.005 does",
    is_sooner("time_to_target_s", NETSENSE, AS_FLOOR),
    ours=True,
)
PAPER.says(
    "netsense_alg1",
    "bdp_gain 2 reaches the target before the published rule",
    is_sooner("time_to_target_s", BDP, NETSENSE),
    ours=True,
)
PAPER.says(
    "netsense_alg1",
    "bdp_gain 2 ends more accurate than the published rule",
    is_more_accurate,
    ours=True,
)
