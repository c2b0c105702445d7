"""Map published cells of COVAP to measures on our runs: tables I and VII, figures 5 and 11.

Times come from replays at true size with as many workers, so they compare directly. Accuracies come
from models trained in place of the paper's.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from harness.reporting.analysis import statistics
from harness.reporting.claims.base import Group, NoSuchRuns, Runs
from harness.reporting.claims.numbers import Measure, MeasuredCell, Number, fewer, measured_cells
from papers.covap import replays, trained

WORKERS = 64
MODELS = {name: model for model, name in replays.MODELS.items()}
NAN = float("nan")
TRAINED = {
    "DDPovlp": trained.DENSE,
    "Top-k": "topk_0.01_int64",
    "EFsignSGD": "ef_signsgd",
    "FP16": "fp16",
    "PowerSGD": replays.POWER,
    "COVAP": trained.COVAP,
}


def cells(rows: list[Any]) -> list[MeasuredCell]:
    """Return the measure of every published row that `_measure` supports."""
    return measured_cells(rows, _measure, absolute="accuracy")


def notes(row: Any, rows: pd.DataFrame, found: Number) -> list[str]:
    """Return a note if the runs have another number of workers than the paper, else []."""
    return fewer(rows, WORKERS)


def _measure(row: Any) -> Measure | None:
    model = MODELS.get(row.model.partition(" (")[0])
    if model is None:
        return None
    if row.id == "covap_table1":
        return _alone(partial(_of_table1, model=model, metric=row.metric))
    if (row.id, row.metric) == ("covap_table7", "speedup_vs_1gpu"):
        return _alone(partial(_speedup, model=model, name=row.method))
    if (row.id, row.metric) == ("covap_table7", "accuracy") and row.method in TRAINED:
        return partial(_accuracy, name=replays.MODELS[model], method=TRAINED[row.method])
    if row.metric == "max_speedup":
        return _alone(lambda runs: 64 * max(replays.speeds(runs, model).values()))
    if row.metric == "below_linear_scaling":
        return _alone(partial(_below_linear, model=model, name=row.method))
    return None


def _alone(value: Callable[[Runs], float]) -> Measure:
    """Return a measure without an interval, as replays are deterministic."""
    return lambda runs: Number(value(runs), NAN, NAN)


def _of_table1(runs: Runs, model: str, metric: str) -> float:
    """Return a metric of table I from a replay: a time in ms or a ratio of times."""
    group = replays.of_model(runs, "covap_table1", model)
    row = group.rows(replays.SERIAL).iloc[0]
    backward_s, comm_s = row.conditions["model.times.backward_s"], row.ccr * row.compute_s
    serial_s = replays.seconds(group, replays.SERIAL)
    values = {
        "T_before": 1e3 * (row.compute_s - backward_s),
        "T_comp": 1e3 * backward_s,
        "T_comm": 1e3 * comm_s,
        "CCR": comm_s / backward_s,
        "S_ovlp": serial_s / replays.seconds(group, replays.DENSE),
        "S_LS": serial_s / row.compute_s,
    }
    return float(values[metric])


def _method(model: str, name: str) -> str:
    return replays.covap_of(model) if name == "COVAP" else replays.RIVALS[name]


def _share(group: Group, method: str) -> float:
    """Return compute time over step time: the share of linear scaling that `method` reaches."""
    return replays.seconds(group, method, "compute_s") / replays.seconds(group, method)


def _speedup(runs: Runs, model: str, name: str) -> float:
    """Return the speed-up over one GPU by equation 2: workers times the share of linear scaling."""
    return WORKERS * _share(replays.of_model(runs, "covap_fig7", model), _method(model, name))


def _below_linear(runs: Runs, model: str, name: str) -> float:
    """Return by how many percent method `name` is below linear scaling on `WORKERS` workers."""
    group = replays.of_model(runs, "covap_fig11", model, workers=WORKERS)
    return 100 * (1 - _share(group, _method(model, name)))


def _accuracy(runs: Runs, name: str, method: str) -> Number:
    """Return the final accuracy in percent; raise `NoSuchRuns` if no run gives one for `name`."""
    if name not in trained.STAND_INS or name == trained.PERPLEXITY:
        raise NoSuchRuns(f"nothing is trained in the place of {name}")
    rows = trained.of_model(runs, name).rows(method)
    return Number(*statistics.interval(100 * rows.final))
