"""Gather a paper's results from its run directories into tables."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness.reporting import claims, measurable
from harness.reporting.analysis import agreement, load, metrics, proof
from harness.reporting.analysis.comparison import NO_BASELINE
from harness.reporting.analysis.decision import arranged, compared, decide
from harness.reporting.claims import published
from harness.reporting.figures.theme import Figure, NothingToDraw
from harness.reporting.report import Comparison, compare, draw
from harness.reproduce.paper import Paper

OF_A_SETTING = ["experiment", "world", "scale", "setting", "condition", "model", "dataset"]
NOT_WRITTEN = ["conditions", "path", "profile", "workers", "batch_size"]  # long, or a local path


class PaperTables(NamedTuple):
    """Tables of a paper, each written to the CSV file of its name; one without data is empty."""

    comparison: pd.DataFrame  # `decision.arranged`, a row per setting and method
    runs: pd.DataFrame  # `metrics.table`, a row per counted run
    claims: pd.DataFrame  # `claims.Claim`
    published: pd.DataFrame  # `published.Side`, the paper's numbers beside measured ones
    proof: pd.DataFrame  # `proof.Proof`, a row per run over packets
    agreement: pd.DataFrame  # `agreement.Pair`, a row per run over packets with a twin
    left_out: pd.DataFrame  # runs that do not count, and why


def runs_of(paper: Paper, results: Path) -> pd.DataFrame:
    """Return `measurable.runs` of all the paper's experiments; raise NoRuns if no run counts."""
    there = [results / name for name in paper.experiments if (results / name).is_dir()]
    found = [measurable.runs(folder) for folder in there]
    runs = pd.concat(found, ignore_index=True) if found else pd.DataFrame({"left_out": ["none"]})
    if not (runs.left_out == "").any():
        raise load.NoRuns(f"no succeeded and valid run of {paper.name} in {results}")
    return runs


def comparisons(paper: Paper, results: Path) -> list[Comparison]:
    """Compare the newest runs of each setting, for `report.draw`; `load.NoRuns` without any."""
    runs = runs_of(paper, results).sort_values("ended", kind="stable")
    newest = runs[runs.left_out == ""].drop_duplicates(
        ["setting", "method", *load.PAIR], keep="last"
    )
    groups = newest.sort_index().groupby("setting", sort=False)
    return [compare(rows) for _, rows in groups]


def drawn(compared: list[Comparison], figure: str) -> Iterator[Figure]:
    """Yield the figure named `figure` of every comparison that has it and data for it."""
    having = [found for each in compared if figure in (found := draw(each))]
    for found in having:
        with suppress(NothingToDraw):
            yield found[figure]()


def gather(paper: Paper, results: Path) -> PaperTables:
    """Read all runs of the paper into tables; raise `load.NoRuns` if no run counts."""
    runs = runs_of(paper, results)
    table = metrics.table(runs)
    table.insert(0, "condition", _conditions(table))
    counted = runs[runs.path.isin(table.path) & (runs.left_out == "")]
    by_experiment = counted.groupby("experiment", sort=False)
    pairs = [_named(agreement.paired(each), name) for name, each in by_experiment]
    absent = runs[runs.left_out != ""]
    return PaperTables(
        comparison=_compared(table),
        runs=_in_front(table.drop(columns=NOT_WRITTEN)),
        claims=_judged(paper, table),
        published=_published(paper, table),
        proof=_proofs(counted[~counted.simulated.astype(bool)]),
        agreement=pd.concat(pairs, ignore_index=True),
        left_out=absent[["experiment", "method", *load.PAIR, "run_id", "left_out"]],
    )


def _judged(paper: Paper, table: pd.DataFrame) -> pd.DataFrame:
    known = {each.name for each in claims.papers()}
    judged = claims.judge(table, paper.claims) if paper.claims in known else []
    found = pd.DataFrame(judged, columns=list(claims.Claim._fields))
    return found.assign(runs=found.runs.map(" ".join))


def _published(paper: Paper, table: pd.DataFrame) -> pd.DataFrame:
    found = published.side_by_side(table)
    return found[found.paper == paper.claims].assign(runs=found.runs.map(" ".join))


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per setting and method: settings as in `table`, methods from best to worst."""
    found = []
    for _, rows in table.groupby("setting", sort=False):
        of_setting = {name: rows[name].iloc[0] for name in OF_A_SETTING}
        baseline = metrics.baseline_of(rows) or NO_BASELINE
        decided = decide(rows, rows.target.iloc[0], baseline)
        in_order = arranged(metrics.compare(compared(rows)), decided)
        found.append(_in_front(in_order.assign(**of_setting)))
    return pd.concat(found, ignore_index=True)


def _proofs(runs: pd.DataFrame) -> pd.DataFrame:
    return _named(proof.of_runs(runs), runs.experiment.to_list())


def _named(table: pd.DataFrame, experiment: Any) -> pd.DataFrame:
    table.insert(0, "experiment", experiment)
    return table


def _in_front(table: pd.DataFrame) -> pd.DataFrame:
    return table[[*OF_A_SETTING, *(name for name in table if name not in OF_A_SETTING)]]


def _conditions(table: pd.DataFrame) -> pd.Series:
    """Return for each row `key value` of the profile and network keys that vary in its experiment.

    Networks of packets and of virtual time are not compared with each other.
    """
    profiles = _apart(table, ["experiment", "model"], _of_profile)
    networks = _apart(table, ["experiment", "model", "world"], _of_network)
    return pd.Series(
        [", ".join(filter(None, each)) for each in zip(profiles, networks, strict=True)],
        table.index,
    )


def _apart(
    table: pd.DataFrame, by: list[str], part: Callable[[dict[str, Any]], dict[str, Any]]
) -> pd.Series:
    """Return for each row `key value` of the conditions that vary among rows equal in `by`.

    `part` selects the conditions to look at.
    """
    told = pd.Series("", index=table.index)
    for _, rows in table.groupby(by):
        parts = [part(each) for each in rows.conditions]
        keys = sorted({key for each in parts for key in each})
        apart = [key for key in keys if len({str(each.get(key)) for each in parts}) > 1]
        for index, own in zip(rows.index, parts, strict=True):
            said = [f"{key.split('.')[-1]} {_said(own[key])}" for key in apart if key in own]
            told[index] = ", ".join(said)
    return told


def _of_profile(conditions: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in conditions.items() if key.startswith("profile.")}


def _of_network(conditions: dict[str, Any]) -> dict[str, Any]:
    """Return the network's conditions; the name of a device replaces its costs."""
    named = {"network.device": conditions.get("network.device.name")}
    keys = [key for key in conditions if key.startswith("network.")]
    return named | {key: conditions[key] for key in keys if not key.startswith("network.device")}


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
