"""Map published cells of ACP-SGD to measures on our runs: table III, figures 6, 9, 11 to 13.

Times come from replays at true size with as many workers, so they compare directly. Accuracies come
from models trained in place of the paper's. In figure 11a "bs=16" means batch 8: see `predictor`.
"""

from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

import pandas as pd

from harness.reporting.analysis import statistics
from harness.reporting.claims.base import Runs
from harness.reporting.claims.numbers import Measure, MeasuredCell, Number, fewer, measured_cells
from papers.acp_sgd import replays, trained

WORKERS = 32
OF_TRAINED = 4  # workers of trained runs
MODELS = {name: model for model, name in replays.MODELS.items()}
NAN = float("nan")
MBIT = {"1GbE": 1_000.0, "10GbE": 10_000.0}
OVER = {"ACP vs S-SGD": "S-SGD", "ACP vs Power-SGD": "Power-SGD", "ACP vs Power-SGD*": "Power-SGD*"}
IN_TEXT = {"Power-SGD": "Power-SGD*", "ACP": "ACP-SGD"}  # names in figures 9 and 11 to 13
FUSED = IN_TEXT | {"S-SGD": "S-SGD"}
AT_RANK = {"ACP vs Power-SGD r=32": 32, "ACP vs Power-SGD r=256": 256}


def cells(rows: list[Any]) -> list[MeasuredCell]:
    """Return the measure of every published row that `_measure` supports."""
    return measured_cells(rows, _measure, absolute="final_accuracy")


def notes(row: Any, rows: pd.DataFrame, found: Number) -> list[str]:
    """Return a note if the runs have another number of workers than the paper, else []."""
    return fewer(rows, OF_TRAINED if row.id == "acp_fig6" else WORKERS)


def _measure(row: Any) -> Measure | None:
    name = row.method.removesuffix(" vs S-SGD")
    name, model = IN_TEXT.get(name, name), MODELS.get(row.model, "")
    if row.id == "acp_fig6" and row.metric == "final_accuracy":
        return partial(_accuracy, name=row.model)
    if (row.id, row.metric) == ("acp_table3", "iteration_time_mean"):
        return _alone(lambda runs: replays.table3(runs, row.method)[model])
    if row.id == "acp_table3_text" and row.method in OVER:
        return _alone(partial(_over_acp, other=OVER[row.method], model=model))
    if (row.id, row.metric) == ("acp_fig9", "speedup_mean"):
        return _alone(lambda runs: replays.gains(runs, "WFBP", "TF")[FUSED[row.method.split()[0]]])
    if row.id == "acp_fig11a" and row.method.startswith("ACP vs"):
        return _alone(partial(_lead_at_batch, method=row.method))
    if row.id == "acp_fig11b" and row.method in AT_RANK and row.metric == "speedup":
        return _alone(lambda runs: replays.leads_by_rank(runs)[AT_RANK[row.method]])
    if row.id == "acp_fig12":
        return _alone(lambda runs: replays.growth(runs, name))
    if row.id == "acp_fig13":
        return _alone(lambda runs: replays.over_dense(runs, MBIT[row.network])[name][model])
    return None


def _alone(value: Callable[[Runs], float]) -> Measure:
    """Return a measure without an interval, as replays are deterministic."""
    return lambda runs: Number(value(runs), NAN, NAN)


def _over_acp(runs: Runs, other: str, model: str) -> float:
    """Return `other`'s step time over ACP-SGD's on `model`; "" gives the mean of all models."""
    steps, ours = replays.table3(runs, other), replays.table3(runs, "ACP-SGD")
    return fmean(steps[each] / ours[each] for each in ([model] if model else replays.MODELS))


def _lead_at_batch(runs: Runs, method: str) -> float:
    """Return a rival's step time over ACP-SGD's; `method` is like "ACP vs S-SGD bs=32"."""
    named, _, batch = method.removeprefix("ACP vs ").partition(" bs=")
    other = {"S-SGD": replays.DENSE, "Power-SGD": "powersgd_vectors_apart"}[named]
    batch_size = 8 if batch == "16" else int(batch)
    group = replays.of_model(runs, "acp_fig11", "resnet152", batch_size=batch_size)
    return replays.step_ms(group, other) / replays.step_ms(group, "acp_sgd")


def _accuracy(runs: Runs, name: str) -> Number:
    """Return ACP-SGD's final accuracy on model `name` in percent, with its interval."""
    rows = trained.of_model(runs, name, trained.TRAINED).rows(trained.ACP)
    return Number(*statistics.interval(100 * rows.final))
