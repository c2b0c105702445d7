"""Compares the methods of a sweep: `python -m harness.report DIR` prints a table, draws figures."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from harness import agreement, load, metrics, proof, tables, twins
from harness.figures import carried, layout, look, methods, timeline, topology, traffic


class Comparison(NamedTuple):
    """The methods that ran under one setting; what the table and the figures are made of."""

    title: str
    name: str  # of its folder, where a report holds several
    baseline: str
    runs: pd.DataFrame  # rows of `load.runs` that count, one per method and seed
    steps: dict[str, pd.DataFrame]  # by path of the run
    evaluations: dict[str, pd.DataFrame]
    measured: pd.DataFrame  # rows of `metrics.Measured`
    table: pd.DataFrame  # `metrics.compare`
    proofs: pd.DataFrame  # rows of `proof.Proof`


def report(
    folder: Path | str,
    baseline: str = "allreduce",
    out: Path | str | None = None,
    agreement_alone: bool = False,
) -> Path:
    """Print the comparisons of the runs in `folder`, write figures and csv; returns where.

    `agreement_alone`: nothing but virtual time against real packets.
    Raises `load.NoRuns` when `folder` holds no run that counts.
    """
    folder = Path(folder)
    out = Path(out) if out else folder / "report"
    console = Console(width=None if sys.stdout.isatty() else tables.WIDTH, highlight=False)
    runs = _newest(load.runs(folder))
    for line in tables.left_out(runs):
        console.print(line, markup=False, soft_wrap=True)
    counted = runs[runs.left_out == ""]
    if counted.empty:
        raise load.NoRuns(f"no succeeded and valid run in {folder}")
    groups = counted.groupby("setting", sort=False) if not agreement_alone else ()
    found = [compare(group, baseline) for _, group in groups]
    for comparison in found:
        _show(console, comparison, differences(comparison, found))
        _write(console, comparison, out / comparison.name if len(found) > 1 else out)
    twins.show(console, agreement.paired(counted), out)
    return out


def compare(runs: pd.DataFrame, baseline: str = "allreduce") -> Comparison:
    """Reads and measures `runs`, rows of `load.runs` that count and share one setting."""
    steps = {path: load.steps(path) for path in runs.path}
    evaluations = {path: load.evaluations(path) for path in runs.path}
    rows: Any = runs.itertuples()
    measured = pd.DataFrame(
        [metrics.measure(row, steps[row.path], evaluations[row.path]) for row in rows]
    )
    first = runs.iloc[0]
    name = f"{first.experiment}-{first.setting}"
    table = metrics.compare(measured, baseline)
    return Comparison(
        _title(first), name, baseline, runs, steps, evaluations, measured, table,
        proof.of_runs(runs),
    )  # fmt: skip


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know to read the table right."""
    table, measured = comparison.table, comparison.measured
    said = [
        "times are emulated seconds; "
        f"samples/s: of all workers, without the first {metrics.UNSTABLE_STEPS} steps"
    ]
    if table.seeds.max() > 1:
        said.append("±: half the 95 % bootstrap interval of the mean over seeds")
    else:
        said.append("one seed per method: no intervals")
    said += _baseline_notes(comparison)
    if measured.final.isna().all():
        said.append("no evaluations: neither quality nor time to target nor speed-up")
    elif comparison.runs.target.isna().all():
        said.append("no target value was set: no time to target")
    censored = measured[~measured.reached & measured.time_to_target_s.notna()]
    if len(censored):
        said.append(">: target not reached before the run ended, in how many runs of how many")
    for row in table[table.diverged > 0].itertuples():
        said.append(
            f"{row.method}: {row.diverged} of {row.seeds} runs diverged, counted as speed-up 0"
        )
    return said


def _baseline_notes(comparison: Comparison) -> list[str]:
    measured, baseline = comparison.measured, comparison.baseline
    said = [] if measured.method.nunique() > 1 else ["one method: nothing to compare it with"]
    seeds = set(measured[measured.method == baseline].seed)
    if not seeds:
        return [*said, f"no run of {baseline} counts: the normalised columns are empty"]
    said.append(f"norm.: over {baseline} of the same seed; speed-up is final quality / time")
    alone = sorted(set(measured.seed) - seeds)
    if alone:
        said.append(f"no {baseline} with seed {', '.join(map(str, alone))}: not in norm. columns")
    return said


def draw(comparison: Comparison) -> dict[str, Callable[[], look.Figure]]:
    """How to draw each figure, by file name; drawing one without data raises ValueError."""
    table, title = comparison.table, comparison.title
    shown = comparison.runs.sort_values("seed").drop_duplicates("method").set_index("method")
    one_seed = f"{title}; seed {', '.join(map(str, sorted(set(shown.seed))))}"
    steps = {str(method): comparison.steps[path] for method, path in shown.path.items()}
    density = {method: metrics.density_over_time(rows) for method, rows in steps.items()}
    goodput = {method: metrics.goodput_over_time(rows) for method, rows in steps.items()}
    longest = max(shown.path, key=lambda path: comparison.steps[path].time_s.max())
    rate = metrics.planned_rate(load.links(longest))
    metric = table.metric.iloc[0]
    one = str(comparison.baseline if comparison.baseline in shown.index else shown.index[0])
    one_run = f"{title}\n{one}, seed {shown.seed[one]}"
    return {
        "network": lambda: _network(shown.path[one], title),
        "links_time": lambda: _links_time(shown.path[one], one_run),
        "speedup": lambda: methods.speedup_bars(table, title),
        "throughput": lambda: methods.throughput_bars(table, title),
        "quality_time": lambda: methods.quality_time(table, title),
        "quality_curves": lambda: methods.quality_curves(_curves(comparison), metric, title),
        "density_time": lambda: methods.density_time(density, rate, one_seed),
        "goodput_time": lambda: methods.goodput_time(goodput, rate, one_seed),
        "breakdown": lambda: methods.breakdown_bars(table, title),
    } | ({"timeline": lambda: _timeline(shown.path, one_seed)} if shown.simulated.all() else {})


def _network(run: str, title: str) -> look.Figure:
    found = layout.read(run)
    if found is None:
        raise look.NothingToDraw(f"{run} does not say what its network was")
    return topology.network(found, title)


def _timeline(paths: pd.Series, title: str) -> look.Figure:
    """Of the last step of each run, as its first worker spent it."""
    found = {str(method): load.timeline(path) for method, path in paths.items()}
    for method, spans in found.items():
        found[method] = spans[(spans.step == spans.step.max()) & (spans["rank"] == 0)]
    return timeline.one_step(found, title)


def _links_time(run: str, title: str) -> look.Figure:
    links = load.links(run)
    over_time = carried.over_time(links[links.link.isin(carried.shown_links(links))])
    return traffic.links_time(over_time, carried.competing(run, over_time.time_s.max()), title)


def _curves(comparison: Comparison) -> dict[str, pd.DataFrame]:
    metric = comparison.table.metric.iloc[0]
    found = {}
    for method, runs in comparison.runs.groupby("method"):
        rows = pd.concat([comparison.evaluations[path] for path in runs.path])
        found[str(method)] = metrics.curve(rows[rows.metric == metric])
    return found


def _newest(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs` where of those of one method and seed only the newest is not left out."""
    by_age = runs[runs.left_out == ""].sort_values("ended")
    older = by_age[by_age.duplicated(["setting", "method", "seed"], keep="last")].index
    reason = runs.left_out.where(~runs.index.isin(older), "older run of the same method and seed")
    return runs.assign(left_out=reason)


def _title(run: Any) -> str:
    parts = [f"{run.workers} workers", run.profile and f"profile {run.profile}", run.compute]
    parts += ["simulated network"] if run.simulated else []
    return f"{run.experiment}: {run.model} on {run.dataset}, {', '.join(filter(None, parts))}"


def differences(comparison: Comparison, others: list[Comparison]) -> list[str]:
    """`key value` of the conditions that set a comparison apart from others."""
    own, *rest = (each.runs.conditions.iloc[0] for each in [comparison, *others])
    keys = {key for other in rest for key in {*own, *other} if own.get(key) != other.get(key)}
    told = {key: own[key] for key in sorted(keys) if key in own}
    return [f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in told.items()]


def _show(console: Console, comparison: Comparison, apart: list[str]) -> None:
    run = comparison.runs.iloc[0]
    console.print(f"\n{comparison.title}", markup=False, style="bold")
    if apart:
        console.print(f"apart by: {', '.join(apart)}", markup=False)
    if pd.notna(run.target):
        console.print(f"target: {comparison.table.metric.iloc[0]} {run.target:g}", markup=False)
    console.print(tables.comparison(comparison.table))
    for note in notes(comparison):
        console.print(f"  {note}", markup=False)
    if run.simulated:
        console.print("\nno proof: the network was simulated, no packets were sent")
        return
    console.print("\nproof: the worst of each method's runs")
    console.print(tables.proof(proof.by_method(comparison.proofs, list(comparison.table.method))))


def _write(console: Console, comparison: Comparison, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    comparison.table.to_csv(out / "comparison.csv", index=False)
    comparison.proofs.to_csv(out / "proof.csv", index=False)
    written = [out / "comparison.csv", out / "proof.csv"]
    for name, drawn in draw(comparison).items():
        try:
            written += look.save(drawn(), out / name)
        except look.NothingToDraw as missing:
            console.print(f"  no figure {name}: {missing}", markup=False)
    for path in written:
        console.print(str(path), markup=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.report", description=__doc__)
    parser.add_argument("folder", type=Path, help="results root, experiment or run directory")
    parser.add_argument("--baseline", default="allreduce", help="method to normalise by")
    parser.add_argument("--agreement", action="store_true", help="only virtual against real time")
    parser.add_argument("--out", type=Path, help="where to write; default: FOLDER/report")
    asked = parser.parse_args()
    try:
        report(asked.folder, asked.baseline, asked.out, asked.agreement)
    except load.NoRuns as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
