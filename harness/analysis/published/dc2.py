"""Which runs say the numbers of DC2's text."""

from typing import Any

import pandas as pd

from harness.analysis import metrics
from harness.analysis.published.numbers import Cell, Measure, Number, fewer, mean, ratio
from harness.claims import dc2
from harness.claims.base import Group, Runs

WORKERS = 8


def cells(rows: list[Any]) -> list[Cell]:
    """Of `MEASURES`."""
    keys = [(row.id, row.method, row.metric) for row in rows]
    return [
        Cell(row, *MEASURES[key]) for row, key in zip(rows, keys, strict=True) if key in MEASURES
    ]


def notes(row: Any, rows: pd.DataFrame, found: Number) -> list[str]:
    """What is not as in the paper."""
    return fewer(rows, WORKERS)


def _best(group: Group, methods: tuple[str, ...], under: str | tuple[str, ...]) -> Number:
    """The best of `methods` over `under` in speed-up; of several, the least."""
    rival = under if isinstance(under, str) else group.least("speedup", *under)
    return ratio(group, "speedup", group.best("speedup", *methods), rival)


def _percent(experiment: str, method: str) -> Measure:
    def measure(runs: Runs) -> Number:
        return Number(*metrics.interval(100 * runs.of(experiment).rows(method).final))

    return measure


def _drop(experiment: str, method: str) -> Measure:
    """Points of accuracy below no compression, of the same seed."""

    def measure(runs: Runs) -> Number:
        finals = runs.of(experiment).rows("allreduce", method).pivot_table(
            index="seed", columns="method", values="final"
        )  # fmt: skip
        return Number(*metrics.interval(100 * (finals.allreduce - finals[method])))

    return measure


def _speedup(experiment: str, methods: tuple[str, ...], under: str | tuple[str, ...]) -> Measure:
    return lambda runs: _best(runs.of(experiment), methods, under)


def _throughput(experiment: str, over: str, under: str) -> Measure:
    return lambda runs: ratio(runs.of(experiment), "throughput", over, under)


def _density(method: str) -> Measure:
    return lambda runs: mean(runs.of(dc2.LONG), "density", method)


EXTREME = "ratio 0.001 (Top-k by context)"
UP_TO = "normalized_training_speedup_max"
OVER = "normalized_training_speedup_ratio_max"
BOTH = (*dc2.DC2, *dc2.RANDOM_DC2)
# id, method and metric of a published row: what measures it, and whether that is absolute
MEASURES: dict[tuple[str, str, str], tuple[Measure, bool]] = {
    ("dc2_fig4a", "DC2 Random-k vs Random-k-0.1", "normalized_training_speedup_ratio"): (
        _speedup(dc2.RESNET20, dc2.RANDOM_DC2, "randomk_0.1"),
        False,
    ),
    ("dc2_fig4a", "Random-k-0.001", "normalized_training_speedup"): (
        lambda runs: mean(runs.of(dc2.RESNET20), "speedup", "randomk_0.001"),
        False,
    ),
    ("dc2_fig4a", EXTREME, "accuracy"): (_percent(dc2.RESNET20, "topk_0.001"), True),
    ("dc2_fig4a", EXTREME, "accuracy_drop_vs_baseline"): (_drop(dc2.RESNET20, "topk_0.001"), True),
    ("dc2_fig4d", "DC2 vs no-compression", UP_TO): (_speedup(dc2.VGG16, BOTH, "allreduce"), False),
    ("dc2_fig4d", "DC2 vs uniform 0.1", OVER): (_speedup(dc2.VGG16, dc2.DC2, "topk_0.1"), False),
    ("dc2_fig4d", "Top-k-0.001", "accuracy"): (_percent(dc2.VGG16, "topk_0.001"), True),
    ("dc2_fig4d", "Top-k-0.001", "accuracy_drop_vs_baseline"): (
        _drop(dc2.VGG16, "topk_0.001"),
        True,
    ),
    ("dc2_fig4d", "Random-k-0.001", "normalized_training_speedup"): (
        lambda runs: mean(runs.of(dc2.VGG16), "speedup", "randomk_0.001"),
        False,
    ),
    ("dc2_fig4e", "ratio 0.001 vs DA2", "throughput_ratio_approx"): (
        _throughput(dc2.VGG16, "topk_0.001", "dc2_da2"),
        False,
    ),
    ("dc2_fig5a", "DC2 vs uniform 0.1", OVER): (_speedup(dc2.IMAGENET, dc2.DC2, "topk_0.1"), False),
    ("dc2_fig5a", "DC2 vs uniform 0.001", OVER): (
        _speedup(dc2.IMAGENET, dc2.DC2, "topk_0.001"),
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
    ("dc2_fig8a", "DC2 vs uniform", OVER): (
        _speedup(dc2.PTB_STATIC, dc2.DC2, dc2.UNIFORM),
        False,
    ),
    ("dc2_fig8b", "DA2", "normalized_throughput"): (
        _throughput(dc2.PTB_STATIC, "dc2_da2", "allreduce"),
        False,
    ),
    ("dc2_fig9b", "Random-k-0.001", "test_accuracy_approx"): (
        _percent(dc2.LONG, "randomk_0.001"),
        True,
    ),
    ("dc2_fig9b", "Random-k-0.001", "accuracy_drop_vs_baseline"): (
        _drop(dc2.LONG, "randomk_0.001"),
        True,
    ),
    **{
        ("dc2_fig9cd", method[-3:].upper(), "mean_compression_ratio"): (_density(method), False)
        for method in dc2.FED
    },
}
