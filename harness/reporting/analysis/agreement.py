"""Compares virtual time with real packets: pairs of runs that differ in their network alone.

Pure functions of the tables of `harness.reporting.analysis.load`. An error is the virtual value
divided by the real one, minus 1.
"""

import hashlib
import json
import math
from typing import Annotated, Any, NamedTuple

import pandas as pd

from controllers.base import Column
from harness.reporting.analysis import load, metrics, ratios, timeseries

OF_NO_RESULT = ("network", "results", "rerun", "report", "tracker", "typed")
SHAPE = ("left", "access", "sites", "site_delays_ms")  # network settings that twins share
FIXED = "fixed"  # controller with a constant density
OF_METHOD = ("compressor", "controller", "error_feedback", "overlap", "parallel")


class Pair(NamedTuple):
    """A real run and its twin in virtual time; times are emulated seconds."""

    virtual: str  # short hash of the simulated network
    condition: Annotated[str, Column("profile, and what sets it apart", shown=True)]
    workers: Annotated[int, Column(shown=True)]
    method: Annotated[str, Column(shown=True)]
    compressor: str
    controller: str
    error_feedback: bool
    overlap: str
    parallel: str
    seed: Annotated[int, Column(shown=True, wide=True)]
    network_seed: Annotated[int, Column(shown=True, wide=True)]
    controlled: bool  # a controller chooses the density
    real_s: Annotated[float, Column("mean of all", "real step (s)", shown=True, digits=4)]
    virtual_s: Annotated[float, Column("mean of all", "virtual step (s)", shown=True, digits=4)]
    error: Annotated[
        float, Column("virtual / real - 1", "error (%)", shown=True, percent=True, signed=True)
    ]
    real_to_target_s: float  # inf if not reached, nan without target
    virtual_to_target_s: float
    real_density: Annotated[float, Column("mean of all steps", shown=True)]
    virtual_density: Annotated[float, Column("mean of all steps", shown=True)]
    density_error: Annotated[
        float, Column("virtual / real - 1", "error (%)", shown=True, percent=True, signed=True)
    ]


class Order(NamedTuple):
    """Agreement of virtual time and packets on the order of methods, under one condition."""

    experiment: str  # "" if all pairs are of one
    virtual: str
    condition: str
    workers: int
    by: str  # measure whose mean over seeds orders methods
    methods: int
    kendall: Annotated[float, Column("tau-b: 1 for one order, -1 for the reverse", digits=2)]
    swapped: Annotated[str, Column("over packets the first is before the second", "swapped")]


class Summary(NamedTuple):
    """Absolute errors of several pairs; NaN without any."""

    pairs: int
    median: Annotated[float, Column("of the mean step", "step: median error (%)", percent=True)]
    worst: Annotated[float, Column("of the mean step", "worst", percent=True)]
    controlled: Annotated[int, Column("pairs", "with a controller")]
    density_median: Annotated[
        float, Column("of these pairs", "density: median error (%)", percent=True)
    ]
    density_worst: Annotated[float, Column("of these pairs", "worst", percent=True)]


def paired(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a `Pair` row for each simulated run among `runs`, of `load.runs`, with a real twin.

    Twins share the whole configuration except the network, and the networks have the same shape. If
    a configuration ran several times, the run that ended last counts.
    """
    configs = {path: load.config(path) for path in runs.path}
    real: dict[str, Any] = {}
    virtual: dict[tuple[str, str], Any] = {}
    rows: Any = runs.sort_values("ended", kind="stable").itertuples()
    for row in rows:
        identity, config = identity_of(configs[row.path]), configs[row.path]
        if row.simulated:
            virtual[_short(config.get("network")), identity] = row
        else:
            real[identity] = row
    twins = [(name, real[key], row) for (name, key), row in virtual.items() if key in real]
    said = _conditions([row for _, _, row in twins])
    found = [_pair(name, said[row.path], twin, row) for name, twin, row in twins]
    order = ["virtual", "condition", "workers", "controlled", "method", *load.PAIR]
    pairs = pd.DataFrame(found, columns=list(Pair._fields))
    return pairs.sort_values(order, ignore_index=True)


def summary(pairs: pd.DataFrame) -> Summary:
    """Return the median and worst absolute errors of `pairs`."""
    errors, densities = pairs.error.abs(), pairs[pairs.controlled.astype(bool)].density_error.abs()
    return Summary(
        pairs=len(pairs),
        median=float(errors.median()),
        worst=float(errors.max()),
        controlled=len(densities),
        density_median=float(densities.median()),
        density_worst=float(densities.max()),
    )


def by(pairs: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return a table with a `Summary` for each value of `columns`, in the order of `pairs`."""
    groups = pairs.groupby(list(columns), sort=False)
    rows = [[*key, *summary(each)] for key, each in groups]
    return pd.DataFrame(rows, columns=[*columns, *Summary._fields])


ORDERED_BY = {"step": ("real_s", "virtual_s")}
ORDERED_BY |= {"time to target": ("real_to_target_s", "virtual_to_target_s")}


def orders(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return a table with an `Order` for each network, condition and measure of `pairs`.

    Means are over the seeds that its methods share. A method without the measure is left out; with
    fewer than two methods there is no row.
    """
    known = pairs if "experiment" in pairs else pairs.assign(experiment="")
    found = []
    groups: Any = known.groupby(["experiment", "virtual", "condition", "workers"], sort=False)
    for of, rows in groups:
        for by, names in ORDERED_BY.items():
            if not set(names) <= set(rows):  # stored tables may predate times to the target
                continue
            measured = rows.dropna(subset=list(names))
            if measured.method.nunique() > 1:
                compared = ratios.seed_block(measured).rows(measured)
                means = compared.groupby("method", sort=False)[list(names)].mean()
                if len(means):
                    found.append(Order._make((*of, by, *_order(means))))
    return pd.DataFrame(found, columns=list(Order._fields))


def _order(means: pd.DataFrame) -> tuple[int, float, str]:
    """Return the number of methods, Kendall's tau-b of real and virtual, and the swapped pairs."""
    from scipy.stats import kendalltau  # slow to import; most reports have no pairs

    real, virtual = (means[name] for name in means)
    swapped = [
        f"{first} and {second}"
        for first in means.index
        for second in means.index
        if real[first] < real[second] and virtual[first] > virtual[second]
    ]
    tau = kendalltau(real.rank(), virtual.rank()).statistic  # ranks make infinite times equal
    return len(means), float(tau), ", ".join(swapped)


def _pair(name: str, condition: str, real: Any, virtual: Any) -> Pair:
    steps = [load.steps(run.path) for run in (real, virtual)]
    to_target = [_to_target_s(run, each) for run, each in zip((real, virtual), steps, strict=True)]
    real_s, virtual_s = (metrics.total_time_s(each) / each.step.nunique() for each in steps)
    densities = [float(timeseries.sent_density(each).mean()) for each in steps]
    return Pair(
        virtual=name,
        condition=condition,
        workers=virtual.workers,
        method=virtual.method,
        **{name: getattr(virtual, name) for name in OF_METHOD},
        seed=virtual.seed,
        network_seed=virtual.network_seed,
        controlled=virtual.controller not in (None, FIXED),
        real_s=real_s,
        virtual_s=virtual_s,
        error=virtual_s / real_s - 1,
        real_to_target_s=to_target[0],
        virtual_to_target_s=to_target[1],
        real_density=densities[0],
        virtual_density=densities[1],
        density_error=densities[1] / densities[0] - 1,
    )


def _to_target_s(run: Any, steps: pd.DataFrame) -> float:
    """Return the time to the run's target: inf if it was not reached, NaN if there is none."""
    evaluations, total_s = load.evaluations(run.path), metrics.total_time_s(steps)
    metric = run.metric if isinstance(run.metric, str) else ""
    found = metrics.time_to_target(evaluations, metric, run.target, total_s)
    return found.time_s if found.reached or math.isnan(found.time_s) else math.inf


def identity_of(config: dict[str, Any]) -> str:
    """Return a hash of the settings that a real run and its virtual twin share."""
    kept = {key: value for key, value in config.items() if key not in OF_NO_RESULT}
    network = config.get("network") or {}
    shape = {key: network[key] for key in SHAPE if network.get(key) is not None}
    has_trunk = "left" in network
    return _short([kept, shape, has_trunk])


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _conditions(runs: list[Any]) -> dict[str, str]:
    """Return each run's conditions as text, by path: its profile and the settings that vary."""
    told: dict[str, str] = {}
    for profile in {run.profile for run in runs}:
        same = [run for run in runs if run.profile == profile]
        keys = sorted({key for run in same for key in run.conditions
                       if not key.startswith("network.") and key != "workers"})  # fmt: skip
        differing = [key for key in keys if len({str(run.conditions.get(key)) for run in same}) > 1]
        for run in same:
            parts = [f"{key.split('.')[-1]} {_shown(run.conditions.get(key))}" for key in differing]
            told[run.path] = ", ".join([str(profile), *parts])
    return told


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
