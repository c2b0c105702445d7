"""Select the runs of NetSenseML's experiments by rate and by reading of its overhead.

Comparisons are pair by pair. TopK-0.1 sends int64 positions, as the paper's volumes imply.
"""

from collections.abc import Iterable
from contextlib import suppress

import pandas as pd

from harness.reporting.analysis import load, metrics, statistics
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims import rules
from harness.reporting.claims.base import Group, NoSuchRuns, Runs, listed
from harness.reporting.claims.guards import Regime
from harness.reporting.claims.origins import PublishedCell

# Steps to leave out: 100, or a quarter of a shorter run (start-up takes 20, then 8 halvings).
SETTLED, SHARE = 100, 4

NETSENSE, BDP, DENSE, TOP_K = "netsense", "netsense_bdp_gain=2", "allreduce", "topk_0.1_int64"
METHODS = (NETSENSE, DENSE, TOP_K)
RIVALS = (DENSE, TOP_K)
AS_FLOOR, FLOOR = "topk_0.005_int64", 0.005
RESNET18, VGG16 = "netsense_resnet18_static", "netsense_vgg16_static"
TABLE1 = "netsense_table1"
DEGRADING, CONTENDED = "netsense_resnet18_degrading", "netsense_resnet18_contended"
RATES = {RESNET18: (200.0, 500.0, 800.0), VGG16: (2500.0, 5000.0, 10_000.0)}  # Mbit/s
PUBLISHED_WORKERS = 8
WITHOUT, OVERHEAD = "A40", "A40 with an overhead of 0.168 s"  # devices
READINGS = {
    WITHOUT: "without an overhead of its own",
    OVERHEAD: "with an overhead of 0.168 s a step",
}
REGIME = Regime(workers=PUBLISHED_WORKERS)
OF_RESNET18 = REGIME._replace(ccr=(5.0, 70.0))  # AllReduce has 9, 14 and 64 in table 1


def throughputs(mbit: float, *methods: str) -> list[PublishedCell]:
    """Return the keys of table 1's throughput cells at `mbit`, for published method names."""
    row = {"id": "netsense_table1", "model": "ResNet18", "network": f"{mbit:g}Mbps"}
    return [row | {"method": m, "metric": "training_throughput"} for m in methods]


def at_rate(runs: Runs, experiment: str, mbit: float) -> Group:
    """Return the runs at a published rate of `RATES`; profiles scale it to a stand-in's size."""
    return runs.of(experiment, profile__of__rate_mbit=mbit)


def by_reading(runs: Runs, experiment: str, reading: str, **conditions: float) -> Group:
    """Return the replays whose device has that `reading` of NetSenseML's overhead."""
    return runs.of(experiment, network__device__name=reading, **conditions)


def telling_throughput(runs: Runs, experiment: str, mbit: float) -> Group:
    """Return the runs that decide throughput at a rate; for ResNet18 table 1's if it has any."""
    if experiment == RESNET18:
        with suppress(NoSuchRuns):
            return by_reading(runs, TABLE1, WITHOUT, profile__of__rate_mbit=mbit)
    return at_rate(runs, experiment, mbit)


def at_rates(runs: Runs, experiment: str) -> dict[float, Group]:
    """Return the runs at each of the `RATES` of `experiment`, by rate in Mbit/s."""
    return {mbit: at_rate(runs, experiment, mbit) for mbit in RATES[experiment]}


def later(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `steps` after start-up: `SETTLED` steps, in a short run a quarter."""
    return steps[steps.step >= min(SETTLED, steps.step.nunique() // SHARE)]


def settled(group: Group, *methods: str) -> pd.DataFrame:
    """Return the runs of `methods`, with `throughput` replaced by samples/s after start-up."""
    group.seen.columns.add("throughput")
    rows = group.rows(*methods)
    speeds = [metrics.throughput(later(load.steps(path))) for path in rows.path]
    return rows.assign(throughput=speeds)


def settled_ratio(group: Group, over: str, under: str) -> Ratio:
    """Return the ratio of two methods' throughputs after start-up, paired by seeds."""
    return group.paired(settled(group, over, under), "throughput", over, under)


def means(rows: pd.DataFrame, column: str = "throughput") -> dict[str, float]:
    """Return the mean of `column` by method."""
    return {str(method): float(x) for method, x in rows.groupby("method")[column].mean().items()}


def by_pair(rows: pd.DataFrame, values: Iterable[float]) -> pd.Series:
    """Return `values`, one for each of `rows`, as a series indexed by pair of seeds."""
    return pd.Series(list(values), pd.MultiIndex.from_frame(rows[load.PAIR]), dtype=float)


def compared(group: Group, over: pd.Series, under: pd.Series) -> Ratio:
    """Return the paired ratio of `over` to `under`; note its p and missing pairs in `group`."""
    both = pd.concat([over, under], axis=1, keys=["over", "under"])
    lost = int(both.isna().any(axis=1).sum())
    group.seen.doubts.append(f"{lost} of {len(both)} pairs lack a value" if lost else "")
    known = both.dropna()
    found = statistics.interval(known.over / known.under)
    p = statistics.log_ratio_p(known.over / known.under)
    group.seen.p_values.append(p)
    return Ratio(*found, len(known), p=p)


def told_of(found: dict[str, pd.Series]) -> str:
    """Format the mean over pairs of each method."""
    return listed({method: float(values.mean()) for method, values in found.items()})


def exposed(group: Group) -> str:
    """Return a sentence on the share of time that NetSenseML waits, and on the bytes it sends."""
    rows = group.rows(NETSENSE)
    share = (rows.exposed_s / rows.iteration_s).mean()
    told = f"{NETSENSE} waits for the network in {share:.2g} of its time"
    return f"{told}, it {rules.sends(group, NETSENSE)}"


def gathers(group: Group) -> str:
    """Describe what TopK-0.1's all-gather costs over a ring, here and on the paper's workers."""
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
