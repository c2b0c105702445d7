"""Some of a paper's experiments, run again: their rows take the places of those kept before.

PaperTables are as they are on disk, all text, by their names.
"""

from pathlib import Path

import pandas as pd

from harness.records.run_directory import OLD_NAMES
from harness.reproduce.gather import PaperTables

Kept = dict[str, pd.DataFrame]
Part = tuple[str, str, str]  # of an experiment: with its model and world

BY_RUNS = {  # what a row is about, of tables that tell no experiment but the runs behind a row
    "claims": ["id", "text", "network", "scale"],
    "published": ["id", "model", "network", "method", "metric", "kind", "scale"],
}
OF_A_KIND = ("network", "kind", "scale")  # what is judged, and so what else could be told
DECLARED = ("ours", "repeats")  # of a claim, whatever is measured; older tables lack them


def read(folder: Path) -> Kept:
    """Tables of `PaperTables` that are there, older names of columns as today's."""
    paths = {name: folder / f"{name}.csv" for name in PaperTables._fields}
    return {
        name: pd.read_csv(path, dtype=str, keep_default_na=False).rename(columns=OLD_NAMES)
        for name, path in paths.items()
        if path.is_file()
    }


def runs_before(folder: Path) -> pd.DataFrame | None:
    """Table `runs` that is there, numbers as numbers; None where there is none."""
    path = folder / "runs.csv"
    return pd.read_csv(path).rename(columns=OLD_NAMES) if path.is_file() else None


def anew(before: pd.DataFrame, fresh: pd.DataFrame) -> set[Part]:
    """Parts of the table `runs` that `fresh` tells in place of `before`.

    Not those of which `fresh` has fewer runs than before, and no other: they are twins of what is
    told, and say nothing of the part itself.
    """
    old, new = parts_of(before), parts_of(fresh)
    return {
        part
        for part in set(new)
        if not set(fresh.run_id[new == part]) < set(before.run_id[old == part])
    }


def merged(before: Kept, fresh: Kept, again: list[str], gone: set[Part] | None = None) -> Kept:
    """`before` with what `fresh` says of the experiments `again`, part by part.

    Of an experiment's models and worlds that `anew` does not name, the old rows stay, but for
    `gone`: parts that the paper has no more.
    """
    old_runs = before["runs"]
    leave = anew(old_runs, fresh["runs"]) | (gone or set())
    stay = set(old_runs[~parts_of(old_runs).isin(leave)].run_id)
    told_anew = {*again, *(experiment for experiment, _, _ in leave)}

    def staying(rows: pd.DataFrame) -> pd.DataFrame:
        if "model" in rows:
            return rows[~parts_of(rows).isin(leave)]
        kept = rows.run_id.isin(stay) if "run_id" in rows else False
        return rows[~rows.experiment.isin(told_anew) | kept]

    def coming(rows: pd.DataFrame) -> pd.DataFrame:
        if "model" in rows:
            return rows[parts_of(rows).isin(leave)]
        return rows[~rows.run_id.isin(stay)] if "run_id" in rows else rows

    found = {}
    for name in PaperTables._fields:
        old, new = before.get(name), fresh.get(name)
        if old is None or new is None:
            one = new if old is None else old
            if one is not None:
                found[name] = one if name in BY_RUNS or old is None else staying(one)
        elif name in BY_RUNS:
            found[name] = _by_runs(old, new, BY_RUNS[name], stay)
        else:
            places = list(dict.fromkeys([*old.experiment, *again]))
            both = pd.concat([staying(old), coming(new)], ignore_index=True)
            found[name] = _in_places(both, places)
    return found


def parts_of(rows: pd.DataFrame) -> pd.Series:
    """Experiment, model and world (packets or virtual) of every row."""
    parts = list(zip(rows.experiment, rows.model, rows.world, strict=True))
    return pd.Series(parts, index=rows.index, dtype=object)


def _in_places(rows: pd.DataFrame, experiments: list[str]) -> pd.DataFrame:
    return rows.sort_values(
        "experiment", key=lambda names: names.map(experiments.index), kind="stable"
    )


def _by_runs(
    before: pd.DataFrame, fresh: pd.DataFrame, about: list[str], stay: set[str]
) -> pd.DataFrame:
    """An old row stays that a run is behind which stays.

    One of no run is told as it is now, and stays where `fresh` tells nothing of its kind at all.
    """
    new = {tuple(row[key] for key in about): row for row in fresh.to_dict("records")}
    told = {tuple(row[key] for key in OF_A_KIND if key in row) for row in new.values()}
    rows = []
    for row in before.to_dict("records"):
        behind = set(row["runs"].split())
        other = new.pop(tuple(row[key] for key in about), None)
        if behind & stay:
            declared = {key: other[key] for key in DECLARED if key in other} if other else {}
            rows.append(declared | row)
        elif other:
            rows.append(other)
        elif not behind and tuple(row[key] for key in OF_A_KIND if key in row) not in told:
            rows.append(row)
    rows += [row for row in new.values() if row["runs"]]
    columns = list(dict.fromkeys([*before.columns, *fresh.columns]))  # older tables have fewer
    return pd.DataFrame(rows, columns=columns).fillna("")
