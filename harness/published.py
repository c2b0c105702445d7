"""The papers' numbers beside measured ones: a row for each published number that runs reproduce.

`results/published/*.csv` has the numbers; here is which runs say the same. Ratios, densities and
shares of one run over another are comparable at every scale, with the paper's number of workers in
mind; samples/s, seconds and accuracies only at scale=paper, as at scale=laptop a small net trains
on other data in the model's place. `comparable` says which.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness import metrics, ratios
from harness.claims import dc2, netsenseml
from harness.claims.base import Group, NoRuns, Runs

PUBLISHED = Path(__file__).parents[1] / "results" / "published"
WORKERS = 8  # of both papers
WORDS = {"two": 2.0}  # that stand for a number


class Side(NamedTuple):
    """A published number and what was measured of the same; a row of `side_by_side`."""

    paper: str
    id: str
    model: str
    network: str  # of the paper
    method: str
    metric: str
    published: float  # nan where the paper has none: not reached
    measured: float  # mean over seeds
    low: float  # its 95 % bootstrap interval; nan below two seeds
    high: float
    unit: str
    bound: str  # low | high | unknown: a time was censored, see `ratios.Ratio`
    comparable: bool
    note: str  # why not comparable, or what differs
    kind: str  # packets | virtual: of the runs
    scale: str
    runs: tuple[str, ...]


class Number(NamedTuple):
    """What runs say."""

    mean: float
    low: float
    high: float
    bound: str = ""


Measure = Callable[[Runs], Number]
METHODS = {
    "NetSenseML": netsenseml.NETSENSE,
    "AllReduce": netsenseml.DENSE,
    "TopK-0.1": netsenseml.TOP_K,
}
MBIT = {"Mbps": 1.0, "Gbps": 1000.0}


def side_by_side(table: pd.DataFrame, folder: Path | str = PUBLISHED) -> pd.DataFrame:
    """Rows of `Side`, by `table` of `metrics.table`; what no run says is left out.

    Packets and virtual time have rows of their own, likewise each scale.
    """
    cells = [cell for name in ("dc2", "netsenseml") for cell in _cells(Path(folder), name)]
    kinds: list[Any] = list(table.groupby(["network", "scale"]))
    found = [
        side
        for (kind, scale), rows in kinds
        for cell, measure, absolute in cells
        if (side := _side(cell, measure, absolute, rows, kind, scale)) is not None
    ]
    return pd.DataFrame(found, columns=list(Side._fields))


def _side(
    cell: Any, measure: Measure, absolute: bool, rows: pd.DataFrame, kind: str, scale: str
) -> Side | None:
    runs = Runs(rows, WORKERS, scale)
    try:
        found = measure(runs)
    except NoRuns:
        return None
    models = rows[rows.run_id.isin(runs.seen)]
    comparable = not absolute or scale == "paper"
    return Side(
        paper=cell.paper,
        id=cell.id,
        model=cell.model,
        network=cell.network,
        method=cell.method,
        metric=cell.metric,
        published=WORDS.get(cell.value, float(pd.to_numeric(cell.value, errors="coerce"))),
        measured=found.mean,
        low=found.low,
        high=found.high,
        unit=cell.unit,
        bound=found.bound,
        comparable=comparable,
        note=_note(models, comparable, found),
        kind=kind,
        scale=scale,
        runs=tuple(runs.seen),
    )


def _note(rows: pd.DataFrame, comparable: bool, found: Number) -> str:
    """What is not as in the paper."""
    row = rows.iloc[0]
    said = [] if comparable else [f"absolute, of {row.model} on {row.dataset}"]
    if row.workers != WORKERS:
        said.append(f"{row.workers} workers, published with {WORKERS}")
    if found.mean != found.mean:
        said.append("no evaluation before NetSenseML had its best accuracy, or none at all")
    return "; ".join(said)


def _cells(folder: Path, paper: str) -> list[tuple[Any, Measure, bool]]:
    """Published rows with what measures them, and whether that is an absolute number.

    Ratios that follow from a table are added, as the paper does not print them.
    """
    read = pd.read_csv(folder / f"{paper}.csv", dtype=str, keep_default_na=False)
    rows: Any = list(read.itertuples())
    found: list[tuple[Any, Measure, bool]] = []
    for row in rows:
        if paper == "netsenseml" and row.id in TABLES:
            found += _of_table(row, rows)
        elif (row.id, row.method, row.metric) in MEASURES:
            found.append((row, *MEASURES[row.id, row.method, row.metric]))
    return found


TABLES = {"netsense_table1": netsenseml.RESNET18, "netsense_table2": netsenseml.VGG16}


def _of_table(row: Any, rows: list[Any]) -> list[tuple[Any, Measure, bool]]:
    """A cell of NetSenseML's tables; for throughput also its ratio to that of AllReduce."""
    experiment, method = TABLES[row.id], METHODS[row.method]
    mbit = float(row.network[:-4]) * MBIT[row.network[-4:]]

    def group(runs: Runs) -> Group:
        return netsenseml.at_rate(runs, experiment, mbit)

    if row.metric == "best_test_accuracy":
        return [(row, lambda runs: _accuracy(group(runs), method), True)]
    if row.metric == "convergence_time":
        return [(row, lambda runs: _time(group(runs), method), True)]
    dense = next(
        r
        for r in rows
        if (r.id, r.network, r.metric, r.method) == (row.id, row.network, row.metric, "AllReduce")
    )
    over = float(row.value) / float(dense.value)
    ratio = row._replace(metric="throughput over AllReduce", value=str(over), unit="x")
    return [
        (row, lambda runs: _mean(group(runs), "throughput", method), True),
        (ratio, lambda runs: _ratio(group(runs), "throughput", method, netsenseml.DENSE), False),
    ][: 1 if method == netsenseml.DENSE else 2]


def _mean(group: Group, column: str, method: str) -> Number:
    return Number(*metrics.interval(group.rows(method)[column]))


def _ratio(group: Group, column: str, over: str, under: str) -> Number:
    found = group.ratio(column, over, under)
    return Number(found.mean, found.low, found.high, found.bound)


def _best(group: Group, methods: tuple[str, ...], under: str | tuple[str, ...]) -> Number:
    """The best of `methods` over `under` in speed-up; of several, the least."""
    rival = under if isinstance(under, str) else group.least("speedup", *under)
    return _ratio(group, "speedup", group.best("speedup", *methods), rival)


def _accuracy(group: Group, method: str) -> Number:
    """Best accuracy in percent, competitors stopped when NetSenseML has its own."""
    rows = group.rows(*{method, netsenseml.NETSENSE})
    found = ratios.stopped(rows, netsenseml.NETSENSE)
    return Number(*metrics.interval(100 * found[found.method == method].best))


def _time(group: Group, method: str) -> Number:
    """Convergence time; the end of the run where it was not reached."""
    rows = group.rows(method)
    found = metrics.interval(rows.convergence_s)
    if rows.converged.all():
        return Number(*found)
    return Number(found.mean, float("nan"), float("nan"), "low")


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
    return lambda runs: _ratio(runs.of(experiment), "throughput", over, under)


def _density(method: str) -> Measure:
    return lambda runs: _mean(runs.of(dc2.LONG), "density", method)


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
        lambda runs: _mean(runs.of(dc2.RESNET20), "speedup", "randomk_0.001"),
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
        lambda runs: _mean(runs.of(dc2.VGG16), "speedup", "randomk_0.001"),
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
    ("netsense_text_tta", "NetSenseML vs TopK-0.1", "time_to_target_ratio"): (
        lambda runs: _ratio(
            netsenseml.at_rate(runs, netsenseml.RESNET18, 500.0),
            "time_to_target_s",
            netsenseml.TOP_K,
            netsenseml.NETSENSE,
        ),
        False,
    ),
}
