"""Some of a paper's experiments, run again: their rows take the places of those kept before.

PaperTables are as they are on disk, all text, by their names.
"""

from pathlib import Path

import pandas as pd

from harness.records.run_directory import OLD_NAMES
from harness.reproduce.gather import PaperTables

Kept = dict[str, pd.DataFrame]

BY_RUNS = {  # what a row is about, of tables that tell no experiment but the runs behind a row
    "claims": ["id", "text", "network", "scale"],
    "published": ["id", "model", "network", "method", "metric", "kind", "scale"],
}


def read(folder: Path) -> Kept:
    """Tables of `PaperTables` that are there, older names of columns as today's."""
    paths = {name: folder / f"{name}.csv" for name in PaperTables._fields}
    return {
        name: pd.read_csv(path, dtype=str, keep_default_na=False).rename(columns=OLD_NAMES)
        for name, path in paths.items()
        if path.is_file()
    }


def merged(before: Kept, fresh: Kept, again: list[str]) -> Kept:
    """`before` with what `fresh` says of the experiments `again`."""
    old_runs = before["runs"]
    replaced = set(old_runs[old_runs.experiment.isin(again)].run_id)
    found = {}
    for name in PaperTables._fields:
        old, new = before.get(name), fresh.get(name)
        if old is None or new is None:
            one = new if old is None else old
            if one is not None:
                found[name] = one if name in BY_RUNS or old is None else _without(one, again)
        elif name in BY_RUNS:
            found[name] = _by_runs(old, new, BY_RUNS[name], replaced)
        else:
            found[name] = _by_experiment(old, new, again)
    return found


def _without(rows: pd.DataFrame, again: list[str]) -> pd.DataFrame:
    return rows[~rows.experiment.isin(again)]


def _by_experiment(before: pd.DataFrame, fresh: pd.DataFrame, again: list[str]) -> pd.DataFrame:
    """New rows where the old ones were, or at the end."""
    places = list(dict.fromkeys([*before.experiment, *again]))
    rows = pd.concat([_without(before, again), fresh], ignore_index=True)
    return rows.sort_values("experiment", key=lambda names: names.map(places.index), kind="stable")


def _by_runs(
    before: pd.DataFrame, fresh: pd.DataFrame, about: list[str], replaced: set[str]
) -> pd.DataFrame:
    """An old row stays that other runs are behind, and one of none if there still are none."""
    new = {tuple(row[key] for key in about): row for row in fresh.to_dict("records")}
    rows = []
    for row in before.to_dict("records"):
        behind = set(row["runs"].split())
        other = new.pop(tuple(row[key] for key in about), None)
        told_anew = other is not None and (bool(behind) or bool(other["runs"]))
        rows.append(other if told_anew and behind <= replaced else row)
    rows += [row for row in new.values() if row["runs"]]
    return pd.DataFrame(rows, columns=list(before.columns))
