"""Rows as `metrics.table` has them, by hand."""

from typing import Any
from zlib import crc32

import pandas as pd

from harness.reporting.analysis import metrics
from harness.reporting.claims import published
from harness.reporting.claims.guards import LEAST_PAIRS


def row(experiment: str, method: str, seed: int = 0, **known: Any) -> dict[str, Any]:
    """A run of 4 workers: accuracy 0.9 in 100 s, 50 samples/s, a dense ring's bytes."""
    conditions = known.pop("conditions", {})
    usual: dict[str, Any] = dict.fromkeys([*metrics.RunMetrics._fields, *metrics.MEANS], 0.0)
    usual |= {
        "method": method, "seed": seed, "network_seed": seed, "metric": "accuracy", "final": 0.9,
        "best": 0.9, "time_s": 100.0, "throughput": 50.0, "time_to_target_s": 80.0, "reached": True,
        "before_target_s": float("nan"), "convergence_s": 80.0, "converged": True,
        "diverged": False, "density": 1.0,
        "asked_density": known.get("density", 1.0), "volume_ratio": 1.0, "steps": 10_000,
        "loss_left": 0.1 + crc32(method.encode()) % 1000 / 1e5, "ccr": 2.0, "compute_s": 0.5,
        "iteration_s": 1.0, "best_s": 90.0, "experiment": experiment, "conditions": conditions,
        "workers": 4, "scale": "laptop", "setting": f"{experiment}{conditions}", "world": "packets",
        "model": "convnet", "dataset": "digits", "dense": method.startswith("allreduce"),
        "overlap": "per_bucket", "controller": method, "path": "nowhere",
        "run_id": f"{experiment}-{conditions}-{method}-{seed}",
    }  # fmt: skip
    return usual | known


def table(*rows: dict[str, Any], copies: int = 1) -> pd.DataFrame:
    """With speedup and normalised_throughput, setting by setting; `goal` is of what is final."""
    whole = copied(pd.DataFrame(rows), copies)
    whole["goal"] = [metrics.quality(*x) for x in zip(whole.metric, whole.final, strict=True)]
    return pd.concat([metrics.normalise(group) for _, group in whole.groupby("setting")])


def sides(rows: list[dict[str, Any]], id: str = "") -> pd.DataFrame:
    """What was measured beside what is published as `id`, or as anything."""
    found = published.side_by_side(table(*rows))
    return found[found.id == id] if id else found


def copied(rows: pd.DataFrame, copies: int = LEAST_PAIRS) -> pd.DataFrame:
    """`rows` so many times, each time of other seeds: as many pairs as a verdict needs."""
    each = [
        rows.assign(seed=rows.seed + 100 * copy, network_seed=rows.network_seed + 100 * copy,
                    run_id=rows.run_id + f"~{copy}" * (copy > 0))
        for copy in range(copies)
    ]  # fmt: skip
    return pd.concat(each, ignore_index=True)
