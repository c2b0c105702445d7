"""Decide DCT's claims on its production model: figure 8, table 5 and the hybrid.

Model, data and cluster are not published. Figure 8 has asynchronous trainers with a parameter
server; the paper gives their card, cores and batch. Table 5 and the hybrid are synchronous
pipelines, as the server's trainers have no stages here. Times are those of a step over one without
compression, pair by pair. Sparsity is the one sent, not the one asked for.
"""

import pandas as pd

from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims import rules
from harness.reporting.claims.base import (
    Found,
    Group,
    NotDecidable,
    Runs,
    above,
    all_of,
    below,
    spoken,
    within,
)
from harness.reporting.claims.changes import MethodPair, Pairs
from harness.reporting.claims.rules import Rule
from papers.dct.thresholds import sparse

TIME = 0.03  # relative change of a step's time below which it is no gain or loss
OFF = 1.5  # density sent over that asked for, above which a run is not of that sparsity
LIFESPAN, SPARSITY = "dct_fig8a", "dct_fig8c"  # also for the losses of 8b and 8d
ACTIVATIONS, HYBRID = "dct_table5", "dct_hybrid"
PUSHED = "dct_hogwild"
L1, L1000, L10000 = f"{PUSHED}_lifespan=1", PUSHED, f"{PUSHED}_lifespan=10000"
PARTITION_1 = f"{PUSHED}_lifespan=1_selection=partition"
PARTITION_1000 = f"{PUSHED}_selection=partition"
LONGEST = 10_000  # steps
LIFESPANS = {"L 1": L1, "L 1000": L1000}
ASKED = {f"{PUSHED}_{d:g}": d for d in (0.25, 0.1, 0.02, 0.01, 0.005)} | {PUSHED: 0.05}  # density
BEND = 0.05  # density below which the gain is flat, as published
CUT_90, CUT_95 = "dct_mp_0.1", "dct_mp_0.05"
UP_TO_90 = {"75 %": "dct_mp_0.25", "90 %": CUT_90}
TOGETHER, ALONE = "dct_hybrid", (CUT_90, "dct_dp_0.01")
PIPELINE = {"parallel._target_": "harness.config.parallel.Pipeline"}  # where activations are sent


def of_dense(experiment: str, methods: dict[str, str], metric: str = "loss") -> Pairs:
    """Return a function that pairs each of `methods`, by label, with no compression."""

    def pairs(runs: Runs) -> list[MethodPair]:
        group = runs.of(experiment)
        return [
            MethodPair(said, group, name, group.dense, metric) for said, name in methods.items()
        ]

    return pairs


def of_sparsities(methods: dict[str, float], metric: str = "loss") -> Pairs:
    """Return a function that pairs figure 8d's `methods` with dense, labelled by sparsity sent."""

    def pairs(runs: Runs) -> list[MethodPair]:
        group = runs.of(SPARSITY)
        sent = realised(group, *methods)
        return [
            MethodPair(f"{sparse(asked)} ({100 * (1 - sent[name]):.3g} % realised)",
                       group, name, group.dense, metric)
            for name, asked in methods.items()
        ]  # fmt: skip

    return pairs


def takes(experiment: str, method: str, published: float, **conditions: str) -> Rule:
    """Return the rule that a step takes `published` times a dense one, and surely on that side."""

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment, **conditions)
        found = time(group, method)
        sure = below(found, 1 - TIME) if published < 1 else above(found, 1 + TIME)
        side = "the other way than" if (found.mean - 1) * (published - 1) < 0 else "not as far as"
        return Found(
            all_of([sure, rules.meets(found, published)]),
            _said({method: found}),
            f"{side} published, {published:g} times: {_parts(group, method)}",
        )

    return decide


def no_more(experiment: str, method: str, under: str, **conditions: str) -> Rule:
    """Return the rule that a step of `method` takes as long as one of `under`, within `TIME`."""

    def decide(runs: Runs) -> Found:
        group = runs.of(experiment, **conditions)
        found = time(group, method, under)
        told = f"{method} takes {spoken(found)} times {under}; as long is up to {100 * TIME:g} %"
        return Found(within(found, 1 - TIME, 1 + TIME), told, _parts(group, under, method))

    return decide


def time(group: Group, method: str, under: str = "") -> Ratio:
    """Return the step time of `method` over that of `under`, by default no compression."""
    return group.ratio("iteration_s", method, under or group.dense)


def no_more_at_10000(runs: Runs) -> Found:
    """Decide whether L = 10000 is as fast as L = 1000; `NotDecidable` if runs are too short."""
    steps = runs.of(LIFESPAN).rows(L1000, L10000).steps.min()
    if steps <= LONGEST:
        raise NotDecidable(
            f"in {steps} steps L = {LONGEST} renews no threshold but those of the warm-up"
        )
    return no_more(LIFESPAN, L10000, L1000)(runs)


def little_without_sorts(runs: Runs) -> Found:
    """Decide whether life-spans save less than half as much with partition as with sorts."""
    group = runs.of(LIFESPAN)
    found, sorts = time(group, PARTITION_1, PARTITION_1000), time(group, L1, L1000)
    half = 1 + (sorts.mean - 1) / 2
    told = f"L = 1 takes {spoken(found)} times L = 1000, with sorts {spoken(sorts)}"
    return Found(below(found, half), told, _parts(group, PARTITION_1, PARTITION_1000, L1))


def realised(group: Group, *methods: str) -> dict[str, float]:
    """Return the mean share of entries that were sent, by method."""
    return group.mean("density", *methods)


def grows_with_sparsity(runs: Runs) -> Found:
    """Decide whether sparser methods are faster, down to `BEND`; `NotDecidable` with under two."""
    group, dense = runs.of(SPARSITY), [m for m, sent in _by_density(runs) if sent >= BEND]
    if len(dense) < 2:
        raise NotDecidable(f"fewer than two methods sent {100 * BEND:g} % or more")
    found = {m: time(group, m) for m in dense}
    less = [below(time(group, *pair)) for pair in zip(dense[1:], dense, strict=False)]
    return Found(all_of(less), _sent(runs, found), _parts(group, *dense))


def flat_beyond_95(runs: Runs) -> Found:
    """Decide whether methods beyond 95 % are equally fast; `NotDecidable` with under two."""
    group, few = runs.of(SPARSITY), [m for m, sent in _by_density(runs) if sent <= OFF * BEND]
    if len(few) < 2:
        raise NotDecidable(f"fewer than two methods sent {100 * OFF * BEND:g} % or less")
    found = time(group, few[-1], few[0])
    told = _sent(runs, {m: time(group, m) for m in few})
    told = f"{told}; the last over the first {spoken(found)}; flat is {100 * TIME:g} %"
    return Found(within(found, 1 - TIME, 1 + TIME), told, _parts(group, *few))


def _by_density(runs: Runs) -> list[tuple[str, float]]:
    """Return figure 8c's methods with the density they sent, largest first."""
    sent = realised(runs.of(SPARSITY), *ASKED)
    return sorted(sent.items(), key=lambda each: -each[1])


def _sent(runs: Runs, times: dict[str, Ratio]) -> str:
    sent = dict(_by_density(runs))
    each = (f"{100 * sent[m]:.3g} % sent {spoken(found)}" for m, found in times.items())
    return f"times a step without compression: {', '.join(each)}"


def more_than_alone(runs: Runs) -> Found:
    """Decide whether both compressions together save more time than either alone."""
    group = runs.of(HYBRID, **PIPELINE)
    found = {method: time(group, method) for method in (*ALONE, TOGETHER)}
    less = [below(time(group, TOGETHER, alone), 1 - TIME) for alone in ALONE]
    return Found(all_of(less), _said(found), _parts(group, *ALONE, TOGETHER))


def twenty_times_less(runs: Runs) -> Found:
    """Decide whether 95 % sparse activations send about 20 times fewer bytes, masks included."""
    group = runs.of(ACTIVATIONS, **PIPELINE)
    found = group.ratio("volume_ratio", group.dense, CUT_95).mean
    told = f"{found:.3g} times less"
    return Found(rules.is_about(found, 20), told, "a mask takes a bit of every entry forward")


def _said(times: dict[str, Ratio]) -> str:
    told = ", ".join(f"{method} {spoken(found)}" for method, found in times.items())
    return f"times a step without compression: {told}"


def _parts(group: Group, *methods: str) -> str:
    """Describe the parts of a step's time, also of one without compression."""
    rows: pd.DataFrame = group.rows(group.dense, *methods)
    names = ["compute_s", "compress_s", "exposed_s"]
    parts = rows.groupby("method")[names].mean()
    return "; ".join(
        f"a step of {name} is {p.compute_s:.2g} s of computation, "
        f"{p.compress_s:.2g} of compression, {p.exposed_s:.2g} of waiting"
        for name, p in parts.loc[[group.dense, *methods]].iterrows()
    )
