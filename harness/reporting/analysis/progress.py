"""Training progress per second: the quantity an oracle maximises, compared with the oracle's."""

import pandas as pd

from harness.reporting.analysis import load, metrics, ratios, timeseries
from harness.reporting.analysis.comparison import Comparison
from harness.reporting.analysis.decision import compared
from harness.reporting.analysis.regret import ORACLE


def over_oracle(comparison: Comparison) -> pd.DataFrame:
    """Return method, progress, progress_low, progress_high: means over seeds, over the oracle's.

    The progress of a step is its sent density to the power of the oracle's `eps`. That of a run is
    the sum over settled steps, divided by their time. Methods with another compressor are left out,
    because they send other bytes at the same density. The table is empty without an oracle with
    `eps`.
    """
    runs, measured = comparison.runs.reset_index(drop=True), comparison.measured
    knows = runs[runs.controller == ORACLE]
    columns = ["method", "progress", "progress_low", "progress_high"]
    if knows.empty:
        return pd.DataFrame(columns=columns)
    oracle = knows.iloc[0]
    eps = (load.config(oracle.path).get("controller") or {}).get("eps")
    if not isinstance(eps, float):
        return pd.DataFrame(columns=columns)
    alike = runs.compressor == oracle.compressor
    found = compared(
        measured[alike.to_numpy()].assign(
            progress=[per_second(comparison.steps[path], eps) for path in runs.path[alike]]
        )
    )
    rows = []
    for method in found.method.unique():
        over = ratios.paired(found, "progress", method, str(oracle.method))
        rows.append((method, over.mean, over.low, over.high))
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("progress", ascending=False, ignore_index=True)


def per_second(steps: pd.DataFrame, eps: float) -> float:
    """Return the sum of density ** `eps` over settled steps, divided by the seconds they took."""
    by_step = steps.assign(density=timeseries.sent_density(steps)).groupby("step")
    ends, progress = by_step.time_s.max(), by_step.density.mean() ** eps
    settled = progress.iloc[metrics.UNSTABLE_STEPS :]
    before = ends.iloc[metrics.UNSTABLE_STEPS - 1 : metrics.UNSTABLE_STEPS]
    if settled.empty or before.empty:
        return float("nan")
    return float(settled.sum() / (ends.iloc[-1] - before.iloc[0]))
