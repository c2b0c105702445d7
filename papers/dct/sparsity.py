"""Compute the effect of sparsity and threshold life-spans on loss, step time and density sent.

Pure functions of tables of `harness.reporting.analysis.load` and of the runs' settings.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.config import label
from harness.records.metrics import lower_is_better
from harness.reporting.analysis import timeseries
from harness.reporting.analysis.load import PAIR
from harness.reporting.analysis.statistics import Interval, interval

SWEPT = ("density", "lifespan")
SCALES = {"accuracy": 100, "test_accuracy": 100}  # from a share to points
PARTS = ("compute_s", "compress_s", "exposed_s", "iteration_s")  # of a step


class RequestedSparsity(NamedTuple):
    """Density and life-span that a method's settings ask for."""

    method: str
    family: str  # the method without these numbers
    density: float  # of activations if compressed, else of gradients; nan if it varies
    lifespan: float  # steps between two thresholds; nan without thresholds


def asked(method: str, config: dict[str, Any]) -> RequestedSparsity:
    """Return density and life-span that a method asks for, by the settings of one of its runs."""
    activations, compressor = config.get("activations") or {}, config.get("compressor") or {}
    density = activations.get("density") or (config.get("controller") or {}).get("density")
    lifespan = compressor.get("lifespan")
    return RequestedSparsity(
        method=method,
        family=label.of(config, but=SWEPT) if compressor else method,
        density=float(density) if isinstance(density, int | float) else float("nan"),
        lifespan=float(lifespan) if lifespan else float("nan"),
    )


def sent(steps: pd.DataFrame) -> float:
    """Return the mean share of activations sent at cuts; without cuts, of gradient entries."""
    crossed = steps.achieved_activation_density
    found = crossed if crossed.notna().any() else timeseries.sent_density(steps)
    return float(found.mean())


def vary(table: pd.DataFrame, column: str, least: int) -> bool:
    """Return True if some family of `RequestedSparsity` rows has `least` values of `column`."""
    return bool((table.groupby("family")[column].nunique() >= least).any())


def baseline(table: pd.DataFrame, preferred: str) -> str | None:
    """Return `preferred` if it is in `table`, else the first method of density 1, else None."""
    whole = table[table.density == 1].method
    return preferred if preferred in set(table.method) else next(iter(whole), None)


def changes(evaluations: pd.DataFrame, metric: str, base: str | None) -> pd.DataFrame:
    """Return the last value of `metric` by method, against `base`'s of the same seed.

    The columns are method, value, low, high; `unit` says their unit. Without `base` the value is
    absolute. `evaluations` has the columns of evaluations.csv and method, seed, network_seed.
    """
    rows = evaluations[evaluations.metric == metric].sort_values("step")
    last = rows.drop_duplicates(["method", *PAIR], keep="last").set_index(PAIR)
    value = last.value
    if base is not None:
        own = value[last.method == base].reindex(last.index)
        relative = lower_is_better(metric)
        value = 100 * (value / own - 1) if relative else (value - own) * SCALES.get(metric, 1)
    found = [(method, *interval(group)) for method, group in value.groupby(last.method.to_numpy())]
    table = pd.DataFrame(found, columns=["method", "value", *Interval._fields[1:]])
    return table.dropna(subset="value")


def unit(metric: str, base: str | None) -> str:
    """Return the axis label for the values of `changes`."""
    said = metric.replace("_", " ")
    if base is None:
        return said
    how = "%" if lower_is_better(metric) else "points"
    return f"{said}, {how}\nover {base}'s"


def times(measured: pd.DataFrame, base: str | None) -> pd.DataFrame:
    """Return each method's mean parts of a step, iteration_s with its interval, and change.

    Change is the ratio to `base`'s step less 1, mean over seeds. `measured` has one
    `metrics.RunMetrics` per row.
    """
    own = measured[measured.method == base].set_index(PAIR).iteration_s
    pairs = pd.MultiIndex.from_frame(measured[PAIR])
    change = measured.iteration_s / own.reindex(pairs).to_numpy() - 1
    found = []
    for method, rows in measured.assign(change=change).groupby("method"):
        row: dict[str, Any] = {"method": method, "change": rows.change.mean()}
        row |= {part: rows[part].mean() for part in PARTS}
        _, low, high = interval(rows.iteration_s)
        found.append(row | {"iteration_s_low": low, "iteration_s_high": high})
    return pd.DataFrame(found)


def by_seed(tables: Mapping[tuple[int, int], pd.DataFrame], column: str, most: int) -> pd.DataFrame:
    """Average `column` of steps.csv over workers: a row for each step, a column for each seed.

    More than `most` steps become as many means of stretches, each at its last step.
    """
    means = {
        seed: table.dropna(subset=column).groupby("step")[column].mean()
        for seed, table in tables.items()
    }
    whole = pd.DataFrame(means).sort_index()
    place = np.arange(len(whole)) // max(1, -(-len(whole) // most))
    last = pd.Series(whole.index, dtype=int).groupby(place).max()
    return whole.groupby(place).mean().set_axis(pd.Index(last, name="step"))


def over_seeds(found: pd.DataFrame) -> pd.DataFrame:
    """Return step, value, low, high: the mean and interval over seeds of a table of `by_seed`."""
    rows = [interval(row) for _, row in found.iterrows()]
    table = pd.DataFrame(rows, columns=["value", *Interval._fields[1:]])
    return table.assign(step=found.index.to_numpy())[["step", *table]]


def percent_over(found: pd.DataFrame, base: pd.DataFrame) -> pd.DataFrame:
    """Return by how many percent a table of `by_seed` is above another, seed by seed."""
    return 100 * (found / base - 1)[found.columns.intersection(base.columns)]
