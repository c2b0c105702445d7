"""What DCT (Gupta et al., 2021) says of its production model: figure 8, table 5 and the hybrid.

Model, data and cluster are not published: of times only signs and shapes are claimed here, and the
numbers stand beside measured ones in `measured`. Time is that of a step.
"""

import pandas as pd

from harness.reporting.claims import rules
from harness.reporting.claims.base import Found, Group, NotDecidable, Runs, listed
from harness.reporting.claims.changes import MethodPair, Pairs
from papers.dct.thresholds import sparse

TIME = 0.03  # of a step's time, less than which is no gain and no loss
LIFESPAN, LIFESPAN_LOSS = "dct_fig8a", "dct_fig8b"
SPARSITY, SPARSITY_LOSS = "dct_fig8c", "dct_fig8d"
ACTIVATIONS, HYBRID = "dct_table5", "dct_hybrid"
PUSHED = "dct_dp_0.05_after_backward"  # times are of pushes that follow a step
L1, L1000, L10000 = (
    f"{PUSHED}{life}_selection=sort" for life in ("_lifespan=1", "", "_lifespan=10000")
)
PARTITION_1 = f"{PUSHED}_lifespan=1"
LIFESPANS = {
    "L 1": "dct_dp_0.05_lifespan=1",
    "L 100": "dct_dp_0.05_lifespan=100_selection=sort",
    "L 1000": "dct_dp_0.05_selection=sort",
    "L 10000": "dct_dp_0.05_lifespan=10000_selection=sort",
}
BY_SPARSITY = {sparse(d): f"dct_dp_{d:g}" for d in (0.25, 0.1, 0.05, 0.02, 0.01, 0.005)}
GROWING = tuple(f"dct_dp_{d}_after_backward" for d in (0.25, 0.1, 0.05))
FLAT = tuple(f"dct_dp_{d}_after_backward" for d in (0.05, 0.02, 0.01, 0.005))
CUT_90, CUT_95 = "dct_mp_0.1", "dct_mp_0.05"
UP_TO_90 = {"75 %": "dct_mp_0.25", "90 %": CUT_90}
TOGETHER, ALONE = "dct_hybrid", (CUT_90, "dct_dp_0.01")
PIPELINE = {"parallel._target_": "harness.config.parallel.Pipeline"}  # where activations are sent


def of_dense(experiment: str, methods: dict[str, str], metric: str = "loss") -> Pairs:
    """Pairs of each of `methods`, by its label, with no compression."""

    def pairs(runs: Runs) -> list[MethodPair]:
        group = runs.of(experiment)
        return [
            MethodPair(said, group, name, group.dense, metric) for said, name in methods.items()
        ]

    return pairs


def gain(group: Group, method: str, under: str = "") -> float:
    """Share of the time of a step of `under` that `method` saves; negative: it takes longer.

    Without `under` it is of a step without compression.
    """
    return 1 - group.ratio("iteration_s", method, under or group.dense).mean


def life_spans(runs: Runs) -> Group:
    """Runs of figure 8a, unless a sort takes the time that all else does in them."""
    group = runs.of(LIFESPAN)
    told = group.rows(group.dense).conditions.iloc[0]
    if any(key.startswith("network.device.costs.") for key in told):
        raise NotDecidable(
            "network.device gives sorts and partitions one time: needs packets, or "
            "network/device=measured"
        )
    return group


def slower_at_1(runs: Runs) -> Found:
    """Test that a sort in every step makes the step slower."""
    group = life_spans(runs)
    found = gain(group, L1)
    return Found(found <= -TIME, _said({"L 1": found}), _parts(group, L1))


def faster_at_1000(runs: Runs) -> Found:
    """Test that a sort in few steps makes the step faster."""
    group = life_spans(runs)
    found = gain(group, L1000)
    return Found(found >= TIME, _said({"L 1000": found}), _parts(group, L1000))


def no_more_at_10000(runs: Runs) -> Found:
    """Against a life-span of 1000."""
    group = life_spans(runs)
    found = gain(group, L10000, L1000)
    told = f"{100 * found:.3g} % less than with L 1000; none is up to {100 * TIME:g}"
    return Found(abs(found) <= TIME, told, _parts(group, L1000, L10000))


def little_without_sorts(runs: Runs) -> Found:
    """Test that longer life-spans save little where a threshold is found by partition."""
    group = life_spans(runs)
    found = gain(group, PUSHED, PARTITION_1)
    told = f"L 1000 takes {100 * found:.3g} % less than L 1"
    sorts = gain(group, L1000, L1)
    reason = _parts(group, PARTITION_1, PUSHED, L1)
    return Found(found < sorts / 2, f"{told}; with sorts {100 * sorts:.3g} % less", reason)


def grows_with_sparsity(runs: Runs) -> Found:
    """Up to 95 %."""
    group = runs.of(SPARSITY)
    found = {method: gain(group, method) for method in GROWING}
    values = list(found.values())
    holds = values == sorted(values) and values[-1] - values[0] >= TIME
    return Found(holds, _said(found), _parts(group, *GROWING))


def flat_beyond_95(runs: Runs) -> Found:
    """Between 95 and 99.5 %."""
    group = runs.of(SPARSITY)
    found = {method: gain(group, method) for method in FLAT}
    more = max(found.values()) - found[FLAT[0]]
    reason = f"{100 * more:.3g} points more; {_parts(group, *FLAT)}"
    return Found(more <= TIME, f"{_said(found)}; flat is {100 * TIME:g} points", reason)


def cuts_save_time(runs: Runs) -> Found:
    """Test that compressing 90 % of activations saves time."""
    group = runs.of(ACTIVATIONS, **PIPELINE)
    found = gain(group, CUT_90)
    return Found(found >= TIME, _said({CUT_90: found}), _parts(group, CUT_90))


def little_more_at_95(runs: Runs) -> Found:
    """Test that compressing 95 % of activations saves little more than 90 %."""
    group = runs.of(ACTIVATIONS, **PIPELINE)
    found = {method: gain(group, method) for method in (CUT_90, CUT_95)}
    more = found[CUT_95] - found[CUT_90]
    told = f"{_said(found)}; little is up to {100 * TIME:g} points"
    return Found(-TIME <= more <= TIME, told, _parts(group, CUT_90, CUT_95))


def hybrid_saves_time(runs: Runs) -> Found:
    """Test that both compressions together save time."""
    group = runs.of(HYBRID, **PIPELINE)
    found = gain(group, TOGETHER)
    return Found(found >= TIME, _said({TOGETHER: found}), _parts(group, TOGETHER))


def more_than_alone(runs: Runs) -> Found:
    """Test that both compressions together save more than either alone."""
    group = runs.of(HYBRID, **PIPELINE)
    found = {method: gain(group, method) for method in (*ALONE, TOGETHER)}
    most = max(found[method] for method in ALONE)
    return Found(found[TOGETHER] - most >= TIME, _said(found), _parts(group, *ALONE, TOGETHER))


def up_to_37_percent(runs: Runs) -> Found:
    """Test that the hybrid saves about 37 % of a step."""
    group = runs.of(HYBRID, **PIPELINE)
    found = gain(group, TOGETHER)
    return Found(rules.is_about(found, 0.37), _said({TOGETHER: found}), _parts(group, TOGETHER))


def twenty_times_less(runs: Runs) -> Found:
    """Bytes of activations and their gradients at 95 %, masks included."""
    group = runs.of(ACTIVATIONS, **PIPELINE)
    found = group.ratio("volume_ratio", group.dense, CUT_95).mean
    told = f"{found:.3g} times less"
    return Found(rules.is_about(found, 20), told, "a mask takes a bit of every entry forward")


def _said(gains: dict[str, float]) -> str:
    return f"% of a step's time saved: {listed({m: 100 * x for m, x in gains.items()})}"


def _parts(group: Group, *methods: str) -> str:
    """Say how a step's time splits into parts, without compression too."""
    rows: pd.DataFrame = group.rows(group.dense, *methods)
    parts = rows.groupby("method")[["iteration_s", "compute_s", "compress_s", "exposed_s"]].mean()
    return "; ".join(
        f"a step of {name} is {p.iteration_s:.3g} s: {p.compute_s:.2g} of computation, "
        f"{p.compress_s:.2g} of compression, {p.exposed_s:.2g} of waiting"
        for name, p in parts.loc[[group.dense, *methods]].iterrows()
    )
