"""Which runs say the numbers of COVAP's tables I and VII, and of its figures 5 and 11.

Times are of replays at true size on as many workers, comparable as they stand; accuracies of what
was trained in the models' place.
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
    """Cells of the tables and figures that `_measure` knows."""
    return measured_cells(rows, _measure, absolute="accuracy")


def notes(row: Any, rows: pd.DataFrame, found: Number) -> list[str]:
    """Differences of these runs from the paper's."""
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
    """A number of replays, in which nothing is random."""
    return lambda runs: Number(value(runs), NAN, NAN)


def _of_table1(runs: Runs, model: str, metric: str) -> float:
    """Times in ms, or what follows from them."""
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
    """Return the share of linear scaling that a method reaches."""
    return replays.seconds(group, method, "compute_s") / replays.seconds(group, method)


def _speedup(runs: Runs, model: str, name: str) -> float:
    """Over one GPU, by equation 2."""
    return WORKERS * _share(replays.of_model(runs, "covap_fig7", model), _method(model, name))


def _below_linear(runs: Runs, model: str, name: str) -> float:
    """Percent."""
    group = replays.of_model(runs, "covap_fig11", model, workers=WORKERS)
    return 100 * (1 - _share(group, _method(model, name)))


def _accuracy(runs: Runs, name: str, method: str) -> Number:
    """Percent."""
    if name not in trained.STAND_INS or name == trained.PERPLEXITY:
        raise NoSuchRuns(f"nothing is trained in the place of {name}")
    rows = trained.of_model(runs, name).rows(method)
    return Number(*statistics.interval(100 * rows.final))
