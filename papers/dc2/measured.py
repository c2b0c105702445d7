"""Map published cells of DC2's text to measures on our runs."""

from typing import Any

import pandas as pd

from harness.reporting.analysis import statistics
from harness.reporting.claims.base import Runs
from harness.reporting.claims.numbers import Measure, MeasuredCell, Number, fewer, mean, ratio
from harness.reporting.claims.rules import Methods
from papers.dc2 import claims as dc2

WORKERS = 8


def cells(rows: list[Any]) -> list[MeasuredCell]:
    """Return the measure of every published row that `MEASURES` lists."""
    keys = [(row.id, row.method, row.metric) for row in rows]
    return [
        MeasuredCell(row, *MEASURES[key])
        for row, key in zip(rows, keys, strict=True)
        if key in MEASURES
    ]


def notes(row: Any, rows: pd.DataFrame, found: Number) -> list[str]:
    """Return a note if the runs have another number of workers than the paper, else []."""
    return fewer(rows, WORKERS)


def _best(experiment: str, runs: Runs, methods: Methods, under: str | Methods) -> Number:
    """Return the speed-up of the best of `methods` over `under`, or over its slowest if several."""
    group = runs.of(experiment)
    rivals = dc2.names(experiment, *([under] if isinstance(under, str) else under))
    rival = rivals[0] if isinstance(under, str) else group.least("speedup", *rivals)
    best = group.best("speedup", *dc2.names(experiment, *methods))
    return ratio(group, "speedup", best, rival)


def _percent(experiment: str, method: str) -> Measure:
    def measure(runs: Runs) -> Number:
        [named] = dc2.names(experiment, method)
        return Number(*statistics.interval(100 * runs.of(experiment).rows(named).final))

    return measure


def _drop(experiment: str, method: str) -> Measure:
    """Return a measure of the points of accuracy below dense, paired by seed."""

    def measure(runs: Runs) -> Number:
        group, [named] = runs.of(experiment), dc2.names(experiment, method)
        rows = group.rows(group.dense, named)
        finals = rows.pivot_table(index="seed", columns="method", values="final")
        return Number(*statistics.interval(100 * (finals[group.dense] - finals[named])))

    return measure


def _speedup(experiment: str, methods: Methods, under: str | Methods) -> Measure:
    return lambda runs: _best(experiment, runs, methods, under)


def _throughput(experiment: str, over: str, under: str) -> Measure:
    named = dc2.names(experiment, over, under)
    return lambda runs: ratio(runs.of(experiment), "throughput", *named)


def _density(controller: str) -> Measure:
    def measure(runs: Runs) -> Number:
        group = runs.of(dc2.LONG)
        fed = group.method(compressor="sampled_topk", controller=controller)
        return mean(group, "density", fed)

    return measure


EXTREME = "ratio 0.001 (Top-k by context)"
UP_TO = "normalized_training_speedup_max"
OVER = "normalized_training_speedup_ratio_max"
BOTH = (*dc2.DC2, *dc2.RANDOM_DC2)
# id, method and metric of a published row: what measures it, and whether that is absolute
MEASURES: dict[tuple[str, str, str], tuple[Measure, bool]] = {
    ("dc2_fig4a", "DC2 Random-k vs Random-k-0.1", "normalized_training_speedup_ratio"): (
        _speedup(dc2.RESNET20, dc2.RANDOM_DC2, dc2.RANDOM_MODERATE),
        False,
    ),
    ("dc2_fig4a", "Random-k-0.001", "normalized_training_speedup"): (
        lambda runs: mean(runs.of(dc2.RESNET20), "speedup", dc2.NO_EF[dc2.RANDOM_EXTREME]),
        False,
    ),
    ("dc2_fig4a", EXTREME, "accuracy"): (_percent(dc2.RESNET20, dc2.EXTREME), True),
    ("dc2_fig4a", EXTREME, "accuracy_drop_vs_baseline"): (_drop(dc2.RESNET20, dc2.EXTREME), True),
    ("dc2_fig4d", "DC2 vs no-compression", UP_TO): (_speedup(dc2.VGG16, BOTH, "allreduce"), False),
    ("dc2_fig4d", "DC2 vs uniform 0.1", OVER): (_speedup(dc2.VGG16, dc2.DC2, dc2.MODERATE), False),
    ("dc2_fig4d", "Top-k-0.001", "accuracy"): (_percent(dc2.VGG16, dc2.EXTREME), True),
    ("dc2_fig4d", "Top-k-0.001", "accuracy_drop_vs_baseline"): (
        _drop(dc2.VGG16, dc2.EXTREME),
        True,
    ),
    ("dc2_fig4d", "Random-k-0.001", "normalized_training_speedup"): (
        lambda runs: mean(runs.of(dc2.VGG16), "speedup", dc2.NO_EF[dc2.RANDOM_EXTREME]),
        False,
    ),
    ("dc2_fig4e", "ratio 0.001 vs DA2", "throughput_ratio_approx"): (
        _throughput(dc2.VGG16, dc2.EXTREME, "dc2_da2"),
        False,
    ),
    ("dc2_fig5a", "DC2 vs uniform 0.1", OVER): (
        _speedup(dc2.IMAGENET, dc2.DC2, dc2.MODERATE),
        False,
    ),
    ("dc2_fig5a", "DC2 vs uniform 0.001", OVER): (
        _speedup(dc2.IMAGENET, dc2.DC2, dc2.EXTREME),
        False,
    ),
    ("dc2_fig6a", "DC2 Top-k vs no-compression", UP_TO): (
        _speedup(dc2.PTB, dc2.DC2, "allreduce"),
        False,
    ),
    ("dc2_fig6a", "DC2 Top-k vs uniform", OVER): (_speedup(dc2.PTB, dc2.DC2, dc2.UNIFORM), False),
    ("dc2_fig8a", "DC2 vs no-compression", UP_TO): (
        _speedup(dc2.PTB_STATIC, dc2.DC2, "allreduce"),
        False,
    ),
    ("dc2_fig8a", "DC2 vs uniform", OVER): (_speedup(dc2.PTB_STATIC, dc2.DC2, dc2.UNIFORM), False),
    ("dc2_fig8b", "DA2", "normalized_throughput"): (
        _throughput(dc2.PTB_STATIC, "dc2_da2", "allreduce"),
        False,
    ),
    ("dc2_fig9b", "Random-k-0.001", "test_accuracy_approx"): (
        _percent(dc2.LONG, dc2.RANDOM_EXTREME),
        True,
    ),
    ("dc2_fig9b", "Random-k-0.001", "accuracy_drop_vs_baseline"): (
        _drop(dc2.LONG, dc2.RANDOM_EXTREME),
        True,
    ),
    **{
        ("dc2_fig9cd", method[-3:].upper(), "mean_compression_ratio"): (_density(method), False)
        for method in dc2.DC2
    },
}
