"""Reads and measures the methods of one setting once, for tables, figures and pages."""

from typing import Any, NamedTuple

import pandas as pd

from harness.reporting.analysis import load, metrics, proof
from harness.reporting.analysis.decision import Decision, arranged, compared, decide

NO_BASELINE = "no compression"  # name of a missing baseline


class Comparison(NamedTuple):
    """The runs of one setting with their measurements, which tables and figures are made from."""

    title: str
    name: str  # of its folder if a report has several comparisons
    baseline: str
    runs: pd.DataFrame  # rows of `load.runs` that count, one per method and pair of seeds
    steps: dict[str, pd.DataFrame]  # by path of the run
    evaluations: dict[str, pd.DataFrame]
    measured: pd.DataFrame  # `metrics.row` of each
    table: pd.DataFrame  # `metrics.compare` of compared seeds, in the order of the decision
    proofs: pd.DataFrame  # rows of `proof.Proof`
    decision: Decision

    @property
    def names(self) -> dict[str, str]:
        """Names of the methods by label; both are equal unless `labels.readable` was applied."""
        labels = self.runs.method
        return dict(zip(labels, self.runs.get("name", labels), strict=True))

    def named(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return `table` with names instead of labels as `method`, for files that programs read."""
        return table.assign(method=table.method.map(self.names))


def compare(runs: pd.DataFrame, baseline: str | None = None) -> Comparison:
    """Read and measure `runs`, counted rows of one setting, against `baseline` or the dense one."""
    steps = {path: load.steps(path) for path in runs.path}
    evaluations = {path: load.evaluations(path) for path in runs.path}
    rows: Any = runs.itertuples()
    measured = pd.DataFrame(
        [metrics.row(run, steps[run.path], evaluations[run.path]) for run in rows]
    )
    first = runs.iloc[0]
    name = f"{first.experiment}-{first.setting}"
    baseline = baseline or metrics.baseline_of(measured) or NO_BASELINE
    decision = decide(measured, first.target, baseline)
    table = arranged(metrics.compare(compared(measured), baseline), decision)
    return Comparison(
        _title(first), name, baseline, runs, steps, evaluations, measured, table,
        proof.of_runs(runs), decision,
    )  # fmt: skip


def methods(comparison: Comparison, others: list[Comparison]) -> dict[str, str]:
    """Return names by label of all methods in the experiment of `comparison`, from `others`."""
    experiment = comparison.runs.experiment.iloc[0]
    alike = [each for each in others if each.runs.experiment.iloc[0] == experiment]
    return dict(sorted(item for each in alike for item in each.names.items()))


def newest(runs: pd.DataFrame) -> pd.DataFrame:
    """Return `runs` where older runs of the same method, setting and seeds are left out."""
    by_age = runs[runs.left_out == ""].sort_values("ended")
    older = by_age[by_age.duplicated(["setting", "method", *load.PAIR], keep="last")].index
    reason = runs.left_out.where(~runs.index.isin(older), "older run of the same method and seeds")
    return runs.assign(left_out=reason)


def _title(run: Any) -> str:
    parts = [f"{run.workers} workers"]
    parts += [f"profile {run.profile}"] if pd.notna(run.profile) else []
    parts += [run.compute] if pd.notna(run.compute) else []
    parts += ["simulated network"] if run.simulated else []
    return f"{run.experiment}: {run.model} on {run.dataset}, {', '.join(parts)}"


def differences(comparison: Comparison, others: list[Comparison]) -> list[str]:
    """Return the conditions, as `key value`, in which a comparison differs from `others`.

    Network settings are not compared between packets and virtual time; the kind is named instead.
    """
    own, kind = comparison.runs.conditions.iloc[0], _kind(comparison)
    keys = set()
    for each in others:
        other = each.runs.conditions.iloc[0]
        differing = {key for key in {*own, *other} if own.get(key) != other.get(key)}
        if _kind(each) != kind:
            differing = {key for key in differing if not key.startswith("network.")}
        keys |= differing
    told = {key: own[key] for key in sorted(keys) if key in own}
    said = [kind] if any(_kind(each) != kind for each in others) else []
    return said + [f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in told.items()]


def _kind(comparison: Comparison) -> str:
    return "in virtual time" if comparison.runs.simulated.iloc[0] else "over packets"


def notes(comparison: Comparison) -> list[str]:
    """Return the notes below the table: units, intervals, missing runs and diverged runs."""
    table, measured = comparison.table, comparison.measured
    said = [
        "times are emulated seconds; "
        f"samples/s: of all workers, without the first {metrics.UNSTABLE_STEPS} steps"
    ]
    if table.seeds.max() > 1:
        said.append("±: half the 95 % interval of the mean over seeds")
    else:
        said.append("one seed per method: no intervals")
    said += _baseline_notes(comparison)
    if measured.final.isna().all():
        said.append("no evaluations: neither quality nor time to target")
    censored = measured[~measured.reached & measured.time_to_target_s.notna()]
    if len(censored):
        said.append(">: target not reached before the run ended, in how many runs of how many")
    for one in comparison.decision.standings:
        if not one.complete:
            said.append(
                f"{one.method}: {one.runs} of {comparison.decision.of_seeds} seeds, so its means "
                "are of other seeds than those of the others, and it has no place"
            )
    for row in table[table.diverged > 0].itertuples():
        said.append(
            f"{row.method}: {row.diverged} of {row.seeds} runs diverged, which never reach a target"
        )
    return said


def _baseline_notes(comparison: Comparison) -> list[str]:
    measured, baseline = comparison.measured, comparison.baseline
    said = [] if measured.method.nunique() > 1 else ["one method: nothing to compare it with"]
    seeds = _pairs(measured[measured.method == baseline])
    if not seeds:
        which = "without compression" if baseline == NO_BASELINE else f"of {baseline}"
        return [*said, f"no run {which} counts: the normalised columns are empty"]
    said.append(f"norm.: over {baseline} of the same seed")
    alone = sorted(_pairs(measured) - seeds)
    if alone:
        told = ", ".join(map(str, alone))
        said.append(f"no {baseline} with seed and network seed {told}: not in norm. columns")
    return said


def _pairs(rows: pd.DataFrame) -> set[tuple[int, int]]:
    return set(zip(rows.seed, rows.network_seed, strict=True))
