"""Map published cells of DCT to measures on our runs; its workers are stages of a model here."""

import re
from typing import Any

import pandas as pd

from harness.reporting.analysis import ratios, statistics
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims.base import Group, NoSuchRuns, Runs
from harness.reporting.claims.changes import TRAIN_LOSS, ended
from harness.reporting.claims.numbers import Measure, MeasuredCell, Number
from papers.dct import claims, production, thresholds

WORKERS = 1
SPARSITY = re.compile(r"sparsity=([\d.]+)%")
SCHEMES = {
    claims.TABLE1: claims.CUT,
    claims.TABLE2: claims.PUSHED,
    claims.TABLE3: claims.BOTH,
    claims.TABLE4: claims.CUT,
    claims.TABLE6: claims.LAPLACE,
    claims.TABLE7: claims.SKETCH,
    claims.TABLE8: claims.GRADIENT,
}
ENDED = {"test_loss": "loss", "test_accuracy": "accuracy", "train_loss": TRAIN_LOSS, "bleu": "bleu"}
PERCENT = {"accuracy": 100.0}  # factor for metrics that runs record as a share
RELATIVE = ("test_loss", "bleu")


def cells(rows: list[Any]) -> list[MeasuredCell]:
    """Return measures for the tables' cells, for qualities over dense, and for `MEASURES`."""
    found: list[MeasuredCell] = []
    for row in map(_with_workers, rows):
        if row.id in SCHEMES and row.metric in ENDED:
            found += _of_table(row, rows)
        elif row.id == production.ACTIVATIONS and _density(row) < 1:
            found.append(MeasuredCell(row, _of_table_5(row), False))
        elif (row.id, row.method, row.metric) in MEASURES:
            found.append(MeasuredCell(row, MEASURES[row.id, row.method, row.metric], False))
    return found


def _with_workers(row: Any) -> Any:
    """Return the row with `, N workers` after its method if N > 1 and its table is in SCHEMES."""
    several = row.id in SCHEMES and row.workers not in ("", "1")
    return row._replace(method=f"{row.method}, {row.workers} workers") if several else row


def notes(row: Any, rows: pd.DataFrame, found: Number) -> list[str]:
    """Return a note if the model has other stages than the paper has workers, else []."""
    stages = {told.get("parallel.stages", 1) for told in rows.conditions}
    if row.id not in SCHEMES or row.workers in ("", "1") or float(row.workers) in stages:
        return []
    return [f"model of {max(stages):g} stages, published with {row.workers} workers"]


def _density(row: Any) -> float:
    told = SPARSITY.search(row.method)
    assert told is not None, row.method
    return round(1 - float(told[1]) / 100, 6)


def _of_table(row: Any, rows: list[Any]) -> list[MeasuredCell]:
    density, metric = _density(row), ENDED[row.metric]
    method = _method(row.id, density)
    cell = MeasuredCell(row, lambda runs: _absolute(_group(runs, row), method, metric), True)
    if row.metric not in RELATIVE or density == 1:
        return [cell]
    base = next(r for r in rows if (r.id, r.metric) == (row.id, row.metric) and _density(r) == 1)
    over = str(float(row.value) / float(base.value))
    follows = row._replace(metric=f"{row.metric} over uncompressed", value=over, unit="x")
    return [
        cell,
        MeasuredCell(
            follows,
            lambda runs: _over(_group(runs, row), method, _method(row.id, 1), metric),
            False,
        ),
    ]


def _method(experiment: str, density: float) -> str:
    if density == 1 and experiment == claims.TABLE7:
        return "allreduce"
    scheme = claims.CUT if density == 1 and experiment == claims.TABLE6 else SCHEMES[experiment]
    return scheme.format(density)


def _group(runs: Runs, row: Any) -> Group:
    """Return a row's runs; table 6 needs table 1's too, table 8 has other stages than published."""
    experiments = (claims.TABLE6, claims.TABLE1) if row.id == claims.TABLE6 else (row.id,)
    if row.id == claims.TABLE8 or row.workers in ("", "1"):
        return runs.of(*experiments)
    return runs.of(*experiments, parallel__stages=float(row.workers))


def _absolute(group: Group, method: str, metric: str) -> Number:
    found = PERCENT.get(metric, 1.0) * ended(group.rows(method), metric)
    if found.isna().all():
        raise NoSuchRuns(f"no {metric} of {method} in {group.experiment}")
    return Number(*statistics.interval(found))


def _over(group: Group, method: str, base: str, metric: str) -> Number:
    base = base or group.dense
    rows = group.rows(method, base)
    found = ratios.paired(rows.assign(ended=ended(rows, metric)), "ended", method, base)
    if not found.seeds:
        raise NoSuchRuns(f"no {metric} of {method} and {base} in {group.experiment}")
    return Number(found.mean, found.low, found.high)


def _of_table_5(row: Any) -> Measure:
    method = claims.CUT.format(_density(row))
    if row.metric == "time_gain":
        return _saved(production.ACTIVATIONS, method)
    metric = ENDED[row.metric.removesuffix("_improvement")]
    return _worse(production.ACTIVATIONS, method, "", metric, sign=-1)


def _saved(experiment: str, method: str, under: str = "", sign: int = -1) -> Measure:
    """Return a measure of the percent of step time that `method` saves; sign 1: that it adds."""

    def measure(runs: Runs) -> Number:
        cut = {} if experiment == production.LIFESPAN else production.PIPELINE
        group = runs.of(experiment, **cut)
        found = group.ratio("iteration_s", method, under or group.dense)
        return _percent(Number(found.mean, found.low, found.high), sign)

    return measure


def _worse(
    experiment: str, method: str, base: str, metric: str = "loss", sign: int = 1, **cut: int
) -> Measure:
    """Return a measure of the percent that `method` is above `base`; sign -1: below it."""
    return lambda runs: _percent(_over(runs.of(experiment, **cut), method, base, metric), sign)


def _percent(found: Number, sign: int) -> Number:
    """Convert a ratio to a percent change, multiplied by `sign`."""
    low, high = sorted(100 * sign * (x - 1) for x in (found.low, found.high))
    return Number(100 * sign * (found.mean - 1), low, high)


def _most_off(experiment: str, methods: list[str]) -> Measure:
    """Return a measure of the largest change of loss among `methods`, in percent, unsigned."""

    def measure(runs: Runs) -> Number:
        group = runs.of(experiment)
        found = [_percent(_over(group, m, group.dense, "loss"), 1) for m in methods]
        most = max(found, key=lambda each: abs(each.mean))
        return most if most.mean >= 0 else Number(-most.mean, -most.high, -most.low)

    return measure


def _spread(found: Ratio) -> Number:
    return Number(found.mean, found.low, found.high)


def _less_sent(runs: Runs) -> Number:
    """Return the factor by which 95 % sparse activations reduce the bytes sent."""
    group = runs.of(production.ACTIVATIONS, **production.PIPELINE)
    found = group.ratio("volume_ratio", group.dense, production.CUT_95)
    return Number(found.mean, float("nan"), float("nan"))


L, HYBRID = "DCT-DP 95% L={}", "DCT-MP 90% + DCT-DP 99% L=1000"
HYBRID_SAVES = _saved(production.HYBRID, production.TOGETHER)
# id, method and metric of a published row: what measures it
MEASURES: dict[tuple[str, str, str], Measure] = {
    ("dct_fig2", "", "max_threshold_deviation_at_95%"): (
        lambda runs: _spread(thresholds.deviation(runs))
    ),
    ("dct_fig6b", "Laplace sparsity=75%", "occupancy_start"): (
        lambda runs: _spread(Group.spread(thresholds.achieved_density(runs)[0]))
    ),
    ("dct_fig6b", "Laplace sparsity=75%", "occupancy_end"): (
        lambda runs: _spread(Group.spread(thresholds.achieved_density(runs)[1]))
    ),
    ("dct_fig8a", L.format(1), "time_increase"): _saved(production.LIFESPAN, production.L1, sign=1),
    ("dct_fig8a", L.format(1000), "time_reduction"): _saved(production.LIFESPAN, production.L1000),
    ("dct_fig8a", L.format(10000), "extra_gain_over_L1000"): _saved(
        production.LIFESPAN, production.L10000, production.L1000
    ),
    ("dct_fig8b", "DCT-DP 95% all L", "loss_deviation_max"): _most_off(
        production.LIFESPAN, list(production.LIFESPANS.values())
    ),
    ("dct_hybrid_prod", HYBRID, "time_reduction"): HYBRID_SAVES,
    ("dct_hybrid_prod", HYBRID, "loss_deviation_max"): _most_off(
        production.HYBRID, [production.TOGETHER]
    ),
    ("dct_text_t1", "DCT-MP 95%", "test_loss_increase"): _worse(
        claims.TABLE1, claims.CUT.format(0.05), claims.CUT.format(1), parallel__stages=3
    ),
    ("dct_text_t2", "DCT-DP 99.5%", "test_loss_increase"): _worse(
        claims.TABLE2, claims.PUSHED.format(0.005), claims.PUSHED.format(1)
    ),
    ("dct_text_t3", "DCT 95%", "test_loss_increase"): _worse(
        claims.TABLE3, claims.BOTH.format(0.05), claims.BOTH.format(1), parallel__stages=3
    ),
    ("dct_abstract", "DCT", "training_time_reduction_max"): HYBRID_SAVES,
    ("dct_abstract", "DCT", "communication_reduction_max"): _less_sent,
}
