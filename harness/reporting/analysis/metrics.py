"""What a run achieved and how methods compare: pure functions of tables.

They are those of `harness.reporting.analysis.load`; `table` reads them for many runs.
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

UNSTABLE_STEPS = 2  # DDP settles its bucket layout in them; throughput and means leave them out
OF_RUN = ["experiment", "setting", "conditions", "profile", "model", "dataset", "workers"]
OF_METHOD = ["compressor", "controller", "error_feedback", "overlap", "parallel", "world", "dense"]
OF_RUN += ["batch_size", "target", "run_id", "path"]  # columns of `load.runs` that `table` keeps


class TimeToTarget(NamedTuple):
    """Time of the first evaluation that met the target; censored (> time_s) if none did."""

    time_s: float
    reached: bool


class RunMetrics(NamedTuple):
    """Measurements of one run; nan where it has no such number."""

    method: str
    compressor: str
    controller: str
    error_feedback: bool
    overlap: str
    parallel: str
    world: str  # packets | virtual
    dense: bool  # nothing is left out
    seed: int
    network_seed: int
    metric: str
    final: Annotated[float, Column("at the last evaluation", shown=True)]
    best: float  # of all evaluations
    best_s: float  # when it was first met
    goal: float  # final, or its inverse where lower is better
    loss_left: float  # train loss of the last quarter of steps over that of the first step
    steps: int  # done
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
    asked_density: float  # of the controller, which a threshold may miss
    volume_ratio: Annotated[
        float, Column("bytes sent over those of dense all-reduce", "volume ratio", shown=True)
    ]
    ccr: float  # communication over computation, mean seconds of a step
    goodput_mbit: float  # received by a worker over the run
    iteration_s: float  # mean of the settled steps; parts that overlap sum to more
    late_s: float = 0.0  # at most, by other programs; 0 in a run whose times count as they are
    late_share: float = 0.0  # likewise, of its time


MEANS = columns.averaged(Step)
SHOWN = columns.shown(RunMetrics) | columns.shown(Step)  # in tables that compare methods


def measure(run: Any, steps: pd.DataFrame, evaluations: pd.DataFrame) -> RunMetrics:
    """All metrics of one run; `run` is a row of `load.runs`."""
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
        convergence_s=settled.time_s,
        converged=settled.reached,
        speedup=float("nan"),  # `normalise` knows the baseline
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
    """`RunMetrics` of a run, and the `means` of its steps."""
    return measure(run, steps, evaluations)._asdict() | means(steps)


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Many sweeps as one: a row for each run of `load.runs` that counts, with `RunMetrics` of it.

    Columns: experiment, setting, scale, unlike (where the model is not as the one it stands for),
    profile and so on, run_id, path, all of `RunMetrics` and the `means` of steps. The baseline is
    the dense run of the same setting and pair. Of several runs of one method and pair only the
    newest is kept.
    """
    counted = runs[runs.left_out == ""].sort_values("ended", kind="stable")
    counted = counted.drop_duplicates(["setting", "method", *load.PAIR], keep="last").sort_index()
    rows: Any = counted.itertuples()
    found = [row(run, load.steps(run.path), load.evaluations(run.path)) for run in rows]
    measured = pd.DataFrame(found, columns=[*RunMetrics._fields, *MEANS], index=counted.index)
    scales = [load.config(path).get("scale") or {} for path in counted.path]
    of_run = counted[OF_RUN].assign(
        scale=[scale.get("name", "") for scale in scales],
        unlike=[form.unlike(form.read(load.environment(path))) for path in counted.path],
    )
    whole = of_run.join(measured).reset_index(drop=True)
    groups = [normalise(rows) for _, rows in whole.groupby("setting", sort=False)]
    return pd.concat(groups).sort_index() if groups else whole


def total_time_s(steps: pd.DataFrame) -> float:
    """Training clock when the last worker ended its last step."""
    return float(steps.time_s.max())


def throughput(steps: pd.DataFrame) -> float:
    """Samples/s of all workers after the first `UNSTABLE_STEPS` steps; nan for a shorter run."""
    ends = steps.groupby("step").time_s.max()
    if len(ends) <= UNSTABLE_STEPS:
        return float("nan")
    counted = steps[steps.step > ends.index[UNSTABLE_STEPS - 1]]
    return float(counted.samples.sum() / (ends.iloc[-1] - ends.iloc[UNSTABLE_STEPS - 1]))


def means(steps: pd.DataFrame) -> dict[str, float]:
    """Mean of each averaged column of steps.csv, over workers and all but `UNSTABLE_STEPS`."""
    counted = _settled(steps)
    return {name: float(counted[name].mean()) for name in MEANS}


def iteration_s(steps: pd.DataFrame) -> float:
    """Mean time from the end of a step to that of the next, after the first `UNSTABLE_STEPS`."""
    ends = steps.groupby("step").time_s.max()
    return float(ends.diff().iloc[UNSTABLE_STEPS:].mean())


def _settled(steps: pd.DataFrame) -> pd.DataFrame:
    return steps[steps.step.isin(sorted(steps.step.unique())[UNSTABLE_STEPS:])]


def volume_ratio(steps: pd.DataFrame) -> float:
    """Return bytes sent over those of a dense ring all-reduce a step, 2 (P - 1) / P per dense byte.

    Of pipelines there are P, and what crosses the cuts of a model counts as it would uncompressed.
    Of a parameter server what trainers push counts, not what they pull. Local steps are held
    against an all-reduce in each of them.
    """
    workers = steps[steps.samples > 0]["rank"].nunique()  # of a pipeline the last stage has them
    dense = 2 * (workers - 1) / workers * _gradient_bytes(steps) if workers else 0
    if "dense_activation_bytes" in steps:
        dense += steps.dense_activation_bytes.sum()
    return float(steps.sent_bytes.sum() / dense) if dense else float("nan")


def _gradient_bytes(steps: pd.DataFrame) -> float:
    """Return the bytes of the gradients of all rows, also of local steps, which exchange none."""
    if not (steps.horizon > 0).any():
        return float(steps.dense_bytes.sum())
    sizes = steps.pivot_table("dense_bytes", "rank", "fragment", "max", fill_value=0)
    whole = sizes.get(-1, 0)  # -1: of none, or of all
    model = sizes.drop(columns=-1, errors="ignore").sum(axis=1).clip(lower=whole)
    return float((model * steps["rank"].value_counts()).sum())


def final_value(evaluations: pd.DataFrame, metric: str) -> float:
    """Value of the last evaluation; nan when there is none."""
    values = evaluations[evaluations.metric == metric].sort_values("step").value
    return float(values.iloc[-1]) if len(values) else float("nan")


def quality(metric: str, value: float) -> float:
    """Larger is better: the value itself, its inverse for perplexity and losses."""
    return float(np.divide(1, value)) if lower_is_better(metric) else value


def time_to_target(
    evaluations: pd.DataFrame, metric: str, target: float | None, total_s: float
) -> TimeToTarget:
    """Time of the first evaluation that met the target; (nan, False) without any."""
    tested = _against(target, evaluations, metric)
    return _first(tested[tested.met], total_s if len(tested) else float("nan"))


def convergence_time(
    evaluations: pd.DataFrame, metric: str, target: float | None, total_s: float
) -> TimeToTarget:
    """First evaluation from which on all met the target; (nan, False) as in `time_to_target`."""
    tested = _against(target, evaluations, metric)
    missed = (~tested.met).to_numpy().nonzero()[0]
    settled = tested.iloc[missed[-1] + 1 if len(missed) else 0 :]
    return _first(settled, total_s if len(tested) else float("nan"))


def _against(target: float | None, evaluations: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Evaluations of `metric` by step, and whether each `met` the target; none without one."""
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
    """Best value of the evaluations up to `until_s` and the time of the first that had it."""
    seen = evaluations[(evaluations.metric == metric) & (evaluations.time_s <= until_s)]
    known = seen.sort_values("step").dropna(subset="value")
    if known.empty:
        return float("nan"), float("nan")
    values = known.value.to_numpy(float)
    place = values.argmin() if lower_is_better(metric) else values.argmax()
    return float(values[place]), float(known.time_s.iloc[place])


def ccr(steps: pd.DataFrame) -> float:
    """Communication over computation after the first `UNSTABLE_STEPS`; nan where none computed."""
    counted = _settled(steps)
    return float(np.divide(counted.comm_s.mean(), counted.compute_s.mean() or float("nan")))


def loss_left(steps: pd.DataFrame) -> float:
    """Train loss of the last quarter of steps over that of the first step; nan under replay."""
    losses = steps[steps.samples > 0].groupby("step").loss.mean()
    last = losses[losses.index >= 0.75 * (losses.index.max() + 1)]
    return float(last.mean() / losses.iloc[0]) if len(losses) and losses.iloc[0] else float("nan")


def goodput_mbit(steps: pd.DataFrame) -> float:
    """Bits that a worker received, mean over workers, over the time of the run."""
    of_worker = steps.groupby("rank").received_bytes.sum().mean()
    return float(of_worker * 8 / 1e6 / total_time_s(steps))


def diverged(steps: pd.DataFrame, evaluations: pd.DataFrame, metric: str, replay: bool) -> bool:
    """True when a worker's last loss or the last evaluation is not finite; replay has neither."""
    if replay:
        return False
    losses = steps[(steps.step == steps.step.max()) & (steps.samples > 0)].loss
    evaluated = (evaluations.metric == metric).any()
    bad_end = evaluated and not np.isfinite(final_value(evaluations, metric))
    return bool(bad_end or not np.isfinite(losses).all())


def baseline_of(measured: pd.DataFrame) -> str | None:
    """The method that is dense by its settings; of several the one that overlaps as usual."""
    dense = measured[measured.dense.astype(bool)]
    order = dense.assign(usual=dense.overlap != "per_bucket").sort_values(["usual", "method"])
    return next(iter(order.method), None)


def normalise(measured: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """Fills speedup and normalised_throughput: each run over the baseline's of its pair, else nan.

    The baseline is the dense method, unless another is asked for.
    speedup is quality_T / time_T over the baseline's; a diverged run has quality 0.
    """
    baseline = baseline or baseline_of(measured)
    goal = [quality(*pair) for pair in zip(measured.metric, measured.final, strict=True)]
    pace = pd.Series(goal, measured.index).mask(measured.diverged, 0.0) / measured.time_s
    base = measured.assign(pace=pace)[measured.method == baseline].set_index(load.PAIR)
    pairs = pd.MultiIndex.from_frame(measured[load.PAIR])
    of_pair = base[["pace", "throughput"]].replace(0.0, np.nan).reindex(pairs)
    return measured.assign(
        speedup=pace / of_pair.pace.to_numpy(),
        normalised_throughput=measured.throughput / of_pair.throughput.to_numpy(),
    )


def compare(measured: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """One row per method, baseline first: means over seeds, and x_low, x_high of their intervals.

    `measured` has one `RunMetrics` per row. `time_to_target_s` is a lower bound without interval
    where fewer than `seeds` runs reached the target.
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
    """step, time_s, value, low, high of a method: `evaluations` of its seeds, of one metric."""
    by_step = evaluations.groupby("step")
    values = pd.DataFrame([interval(group.value) for _, group in by_step], columns=Interval._fields)
    times = by_step.time_s.mean().reset_index()
    return times.join(values.rename(columns={"mean": "value"}))
