"""Metrics of a run and means of methods: pure functions of the tables of `analysis.load`.

`table` reads these tables for many runs.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from controllers.base import Column
from harness.records import columns
from harness.records.metrics import lower_is_better
from harness.records.run_directory import Step
from harness.reporting.analysis import load, timeseries
from harness.reporting.analysis.statistics import Interval, interval
from harness.workloads import form

UNSTABLE_STEPS = 2  # DDP still changes its bucket layout; throughput and means skip them
OF_RUN = ["experiment", "setting", "conditions", "profile", "model", "dataset", "workers"]
OF_METHOD = ["compressor", "controller", "error_feedback", "overlap", "parallel", "world", "dense"]
OF_RUN += ["batch_size", "target", "run_id", "path"]  # columns of `load.runs` that `table` keeps


class TimeToTarget(NamedTuple):
    """Time of the first evaluation that met the target; a lower bound if none did."""

    time_s: float
    reached: bool
    before_s: float = float("nan")  # of the evaluation before, or 0: it was met in between


class RunMetrics(NamedTuple):
    """Measurements of one run; NaN if the run lacks the number."""

    method: str
    compressor: str
    controller: str
    error_feedback: bool
    overlap: str
    parallel: str
    world: str  # packets | virtual
    dense: bool  # sends every gradient entry
    seed: int
    network_seed: int
    metric: str
    final: Annotated[float, Column("at the last evaluation", shown=True)]
    best: float  # of all evaluations
    best_s: float  # time of the first evaluation with it
    goal: float  # final, or its inverse where lower is better
    loss_left: float  # train loss of the last quarter of steps over that of the first step
    steps: int  # completed
    diverged: bool  # loss or quality ended non-finite
    time_s: Annotated[float, Column("of the whole run, emulated", "time (s)", shown=True)]
    throughput: Annotated[float, Column("of all workers", "samples/s", shown=True)]
    time_to_target_s: Annotated[
        float, Column("emulated; > where it was not reached", "target after (s)", shown=True)
    ]
    reached: bool
    convergence_s: float  # from when on every evaluation met the target
    converged: bool
    speedup: Annotated[
        float, Column("over the baseline's", "final quality over time (×)", shown=True)
    ]
    normalised_throughput: Annotated[
        float, Column("over the baseline's", "norm. samples/s", shown=True)
    ]
    density: Annotated[float, Column("share of gradient entries sent", "mean density", shown=True)]
    asked_density: float  # requested by the controller; a threshold may miss it
    volume_ratio: Annotated[
        float, Column("bytes sent over those of dense all-reduce", "volume ratio", shown=True)
    ]
    ccr: float  # communication over computation, mean seconds of a step
    goodput_mbit: float  # received by a worker over the run
    iteration_s: float  # mean of the settled steps; parts that overlap sum to more
    late_s: float = 0.0  # largest delay by other programs; 0 if times are exact
    late_share: float = 0.0  # the same as a share of its time
    before_target_s: float = float("nan")  # the last time that was too early for the target


MEANS = columns.averaged(Step)
SHOWN = columns.shown(RunMetrics) | columns.shown(Step)  # in tables that compare methods


def measure(run: Any, steps: pd.DataFrame, evaluations: pd.DataFrame) -> RunMetrics:
    """Return all metrics of one run; `run` is a row of `load.runs`."""
    first = evaluations.metric.iloc[0] if len(evaluations) else ""
    metric = run.metric if isinstance(run.metric, str) else first
    total_s = total_time_s(steps)
    to_target = time_to_target(evaluations, metric, run.target, total_s)
    settled = convergence_time(evaluations, metric, run.target, total_s)
    best, best_s = best_value(evaluations, metric)
    return RunMetrics(
        method=run.method,
        **{name: getattr(run, name) for name in OF_METHOD},
        seed=run.seed,
        network_seed=run.network_seed,
        metric=metric,
        final=final_value(evaluations, metric),
        best=best,
        best_s=best_s,
        goal=quality(metric, final_value(evaluations, metric)),
        loss_left=loss_left(steps),
        steps=int(steps.step.nunique()),
        diverged=diverged(steps, evaluations, metric, replay=run.compute == "replay"),
        time_s=total_s,
        throughput=throughput(steps),
        time_to_target_s=to_target.time_s,
        reached=to_target.reached,
        before_target_s=to_target.before_s,
        convergence_s=settled.time_s,
        converged=settled.reached,
        speedup=float("nan"),  # filled by `normalise`
        normalised_throughput=float("nan"),
        density=float(timeseries.sent_density(steps).mean()),
        asked_density=float(steps.density.mean()),
        volume_ratio=volume_ratio(steps),
        ccr=ccr(steps),
        goodput_mbit=goodput_mbit(steps),
        iteration_s=iteration_s(steps),
        late_s=run.late_at_most_s or 0.0 if run.grade == "bounded" else 0.0,
        late_share=run.late_at_most_share or 0.0 if run.grade == "bounded" else 0.0,
    )


def row(run: Any, steps: pd.DataFrame, evaluations: pd.DataFrame) -> dict[str, Any]:
    """Return the `RunMetrics` of a run and the `means` of its steps, by column name."""
    return measure(run, steps, evaluations)._asdict() | means(steps)


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row of metrics for each run of `load.runs` that counts; sweeps may be mixed.

    Columns: those of OF_RUN, `scale`, `unlike` (how a stand-in differs from its original),
    `RunMetrics` and the `means` of steps. The baseline is the dense run of the same setting and
    pair of seeds. Of several runs of one method and pair only the newest is kept. A run that a
    number stopped which is not finite counts: it has the worst quality and no times.
    """
    counted = runs[(runs.left_out == "") | load.lost(runs)].sort_values("ended", kind="stable")
    counted = counted.drop_duplicates(["setting", "method", *load.PAIR], keep="last").sort_index()
    rows: Any = counted.itertuples()
    found = [
        _lost(run) if run.left_out else row(run, load.steps(run.path), load.evaluations(run.path))
        for run in rows
    ]
    measured = pd.DataFrame(found, columns=[*RunMetrics._fields, *MEANS], index=counted.index)
    scales = [load.config(path).get("scale") or {} for path in counted.path]
    of_run = counted[OF_RUN].assign(
        scale=[scale.get("name", "") for scale in scales],
        unlike=[form.unlike(form.read(load.environment(path))) for path in counted.path],
    )
    whole = of_run.join(measured).reset_index(drop=True)
    groups = [normalise(rows) for _, rows in whole.groupby("setting", sort=False)]
    return pd.concat(groups).sort_index() if groups else whole


def _lost(run: Any) -> dict[str, Any]:
    """Return the `RunMetrics` of a run that failed by a number that is not finite."""
    known: dict[str, Any] = dict.fromkeys([*RunMetrics._fields, *MEANS], float("nan"))
    known |= {name: getattr(run, name) for name in ("method", *OF_METHOD, *load.PAIR, "steps")}
    metric = run.metric if isinstance(run.metric, str) else "loss"
    worst = float("inf") if lower_is_better(metric) else 0.0
    known |= {"metric": metric, "final": worst, "best": worst, "goal": 0.0, "diverged": True}
    never = float("inf") if run.target == run.target and run.target is not None else float("nan")
    times = {"time_to_target_s": never, "convergence_s": never}
    return known | times | {"reached": False, "converged": False, "late_s": 0.0, "late_share": 0.0}


def total_time_s(steps: pd.DataFrame) -> float:
    """Return the training clock when the last worker ended its last step."""
    return float(steps.time_s.max())


def throughput(steps: pd.DataFrame) -> float:
    """Return samples/s of all workers after the first `UNSTABLE_STEPS`; NaN for a shorter run."""
    ends = steps.groupby("step").time_s.max()
    if len(ends) <= UNSTABLE_STEPS:
        return float("nan")
    counted = steps[steps.step > ends.index[UNSTABLE_STEPS - 1]]
    return float(counted.samples.sum() / (ends.iloc[-1] - ends.iloc[UNSTABLE_STEPS - 1]))


def means(steps: pd.DataFrame) -> dict[str, float]:
    """Return the mean of each averaged column of steps.csv, without the first `UNSTABLE_STEPS`."""
    counted = _settled(steps)
    return {name: float(counted[name].mean()) for name in MEANS}


def iteration_s(steps: pd.DataFrame) -> float:
    """Return the mean seconds between the ends of two steps, after the first `UNSTABLE_STEPS`."""
    ends = steps.groupby("step").time_s.max()
    return float(ends.diff().iloc[UNSTABLE_STEPS:].mean())


def _settled(steps: pd.DataFrame) -> pd.DataFrame:
    return steps[steps.step.isin(sorted(steps.step.unique())[UNSTABLE_STEPS:])]


def volume_ratio(steps: pd.DataFrame) -> float:
    """Return bytes sent over those of a dense ring all-reduce in every step; NaN for one worker.

    The ring sends 2 (P - 1) / P bytes per dense byte. With pipelines P is their number, and
    activation traffic counts at its uncompressed size. With a parameter server only pushed bytes
    count. Local steps are compared with an all-reduce in each step.
    """
    workers = steps[steps.samples > 0]["rank"].nunique()  # in a pipeline the last stage has them
    dense = 2 * (workers - 1) / workers * _gradient_bytes(steps) if workers else 0
    if "dense_activation_bytes" in steps:
        dense += steps.dense_activation_bytes.sum()
    return float(steps.sent_bytes.sum() / dense) if dense else float("nan")


def _gradient_bytes(steps: pd.DataFrame) -> float:
    """Return the dense gradient bytes of all rows, including local steps that exchange none."""
    if not (steps.horizon > 0).any():
        return float(steps.dense_bytes.sum())
    sizes = steps.pivot_table("dense_bytes", "rank", "fragment", "max", fill_value=0)
    whole = sizes.get(-1, 0)  # -1: no fragment, or all
    model = sizes.drop(columns=-1, errors="ignore").sum(axis=1).clip(lower=whole)
    return float((model * steps["rank"].value_counts()).sum())


def final_value(evaluations: pd.DataFrame, metric: str) -> float:
    """Return the value of the last evaluation; NaN without any."""
    values = evaluations[evaluations.metric == metric].sort_values("step").value
    return float(values.iloc[-1]) if len(values) else float("nan")


def quality(metric: str, value: float) -> float:
    """Return a value that is better if larger: the inverse of perplexity and losses."""
    return float(np.divide(1, value)) if lower_is_better(metric) else value


def time_to_target(
    evaluations: pd.DataFrame, metric: str, target: float | None, total_s: float
) -> TimeToTarget:
    """Return the first time at the target, else `total_s` as a bound; (NaN, False) without any."""
    tested = _against(target, evaluations, metric)
    found = _first(tested[tested.met], total_s if len(tested) else float("nan"))
    if not found.reached:
        return found
    first = int(tested.met.to_numpy().argmax())
    return found._replace(before_s=float(tested.time_s.iloc[first - 1]) if first else 0.0)


def convergence_time(
    evaluations: pd.DataFrame, metric: str, target: float | None, total_s: float
) -> TimeToTarget:
    """Return the time from which on all evaluations met the target; else as `time_to_target`."""
    tested = _against(target, evaluations, metric)
    missed = (~tested.met).to_numpy().nonzero()[0]
    settled = tested.iloc[missed[-1] + 1 if len(missed) else 0 :]
    return _first(settled, total_s if len(tested) else float("nan"))


def _against(target: float | None, evaluations: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return evaluations of `metric` by step, with a column `met`; empty without a target."""
    seen = evaluations[evaluations.metric == metric].sort_values("step")
    if target is None or np.isnan(target):
        seen = seen.iloc[:0]
        return seen.assign(met=pd.Series(dtype=bool))
    return seen.assign(
        met=seen.value <= target if lower_is_better(metric) else seen.value >= target
    )


def _first(rows: pd.DataFrame, censored_s: float) -> TimeToTarget:
    return TimeToTarget(rows.time_s.iloc[0], True) if len(rows) else TimeToTarget(censored_s, False)


def best_value(
    evaluations: pd.DataFrame, metric: str, until_s: float = float("inf")
) -> tuple[float, float]:
    """Return the best value of evaluations up to `until_s`, and the time of the first with it."""
    seen = evaluations[(evaluations.metric == metric) & (evaluations.time_s <= until_s)]
    known = seen.sort_values("step").dropna(subset="value")
    if known.empty:
        return float("nan"), float("nan")
    values = known.value.to_numpy(float)
    place = values.argmin() if lower_is_better(metric) else values.argmax()
    return float(values[place]), float(known.time_s.iloc[place])


def ccr(steps: pd.DataFrame) -> float:
    """Return communication over computation after `UNSTABLE_STEPS`; NaN if nothing computed."""
    counted = _settled(steps)
    return float(np.divide(counted.comm_s.mean(), counted.compute_s.mean() or float("nan")))


def loss_left(steps: pd.DataFrame) -> float:
    """Return train loss of the last quarter of steps over the first step's; NaN under replay."""
    losses = steps[steps.samples > 0].groupby("step").loss.mean()
    last = losses[losses.index >= 0.75 * (losses.index.max() + 1)]
    return float(last.mean() / losses.iloc[0]) if len(losses) and losses.iloc[0] else float("nan")


def goodput_mbit(steps: pd.DataFrame) -> float:
    """Return Mbit/s that a worker received over the run, mean over workers."""
    of_worker = steps.groupby("rank").received_bytes.sum().mean()
    return float(of_worker * 8 / 1e6 / total_time_s(steps))


def diverged(steps: pd.DataFrame, evaluations: pd.DataFrame, metric: str, replay: bool) -> bool:
    """Return True if a worker's last loss or the last evaluation is not finite; False in replay."""
    if replay:
        return False
    losses = steps[(steps.step == steps.step.max()) & (steps.samples > 0)].loss
    evaluated = (evaluations.metric == metric).any()
    bad_end = evaluated and not np.isfinite(final_value(evaluations, metric))
    return bool(bad_end or not np.isfinite(losses).all())


def baseline_of(measured: pd.DataFrame) -> str | None:
    """Return the dense method, or None; of several prefer one that overlaps `per_bucket`."""
    dense = measured[measured.dense.astype(bool)]
    order = dense.assign(usual=dense.overlap != "per_bucket").sort_values(["usual", "method"])
    return next(iter(order.method), None)


def normalise(measured: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """Return `measured` with speedup and normalised_throughput, relative to the baseline.

    The baseline is the run of the same seeds whose method is `baseline`, by default the dense one;
    both columns are NaN without it. speedup is quality / time over the baseline's; a diverged run
    has quality 0.
    """
    baseline = baseline or baseline_of(measured)
    goal = [quality(*pair) for pair in zip(measured.metric, measured.final, strict=True)]
    pace = pd.Series(goal, measured.index).mask(measured.diverged, 0.0) / measured.time_s
    base = measured.assign(pace=pace)[measured.method == baseline].set_index(load.PAIR)
    pairs = pd.MultiIndex.from_frame(measured[load.PAIR])
    of_pair = base[["pace", "throughput"]].replace(0.0, np.nan).reindex(pairs)
    speedup = pace / of_pair.pace.to_numpy()
    return measured.assign(
        speedup=speedup.mask(measured.diverged & of_pair.pace.notna().to_numpy(), 0.0),
        normalised_throughput=measured.throughput / of_pair.throughput.to_numpy(),
    )


def compare(measured: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """Return one row per method, baseline first: means over seeds, with intervals x_low and x_high.

    `measured` has one `RunMetrics` per row. `time_to_target_s` is a lower bound without interval if
    fewer than `seeds` runs reached the target.
    """
    baseline = baseline or baseline_of(measured)
    groups = normalise(measured, baseline).groupby("method")
    rows = [_method_row(str(method), runs) for method, runs in groups]
    rows.sort(key=lambda row: (row["method"] != baseline, row["method"]))
    return pd.DataFrame(rows)


def _method_row(method: str, runs: pd.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = {"method": method}
    row |= {name: runs[name].iloc[0] for name in OF_METHOD}
    row |= {"metric": runs.metric.iloc[0], "seeds": len(runs)}
    row |= {"diverged": int(runs.diverged.sum()), "reached": int(runs.reached.sum())}
    for name in SHOWN:
        of_seeds = interval(runs[name])
        if name == "time_to_target_s" and row["reached"] < row["seeds"]:
            of_seeds = Interval(of_seeds.mean, float("nan"), float("nan"))
        row |= {name: of_seeds.mean, f"{name}_low": of_seeds.low, f"{name}_high": of_seeds.high}
    rest = [name for name in ("iteration_s", *MEANS) if name not in SHOWN]
    return row | {name: runs[name].mean() for name in rest}


def curve(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return step, time_s, value, low, high: the mean of one method's `evaluations` over seeds."""
    by_step = evaluations.groupby("step")
    values = pd.DataFrame([interval(group.value) for _, group in by_step], columns=Interval._fields)
    times = by_step.time_s.mean().reset_index()
    return times.join(values.rename(columns={"mean": "value"}))
