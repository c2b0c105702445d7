"""Judges claims by the tables that `results/reference/STUDY` keeps; the run directories are gone.

runs.csv has the rows of `metrics.table`, and conditions.csv the settings behind its column
`setting`. The commands `study claims` and `study reproduce --reference` use this module.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from harness.reporting import claims
from harness.reporting.analysis import load
from harness.reporting.claims import Claim
from harness.reporting.claims.published import Side

RUNS, CONDITIONS, CLAIMS = "runs.csv", "conditions.csv", "claims.csv"
# A CSV file has missing values for empty texts, and a hash may look like a number.
OF_TEXT = ["metric", "unlike", "condition", "setting", "run_id"]


def is_kept(folder: Path) -> bool:
    """Return True if `folder` has the tables of a study, not run directories."""
    return (folder / CONDITIONS).is_file()


def conditions(table: pd.DataFrame) -> pd.DataFrame:
    """Return key, value (JSON) and settings: every condition in `table`, and who has it."""
    having: dict[tuple[str, str], list[str]] = defaultdict(list)
    of_setting = table.drop_duplicates("setting").set_index("setting").conditions
    for setting, told in of_setting.items():
        for key, value in told.items():
            having[key, json.dumps(value)].append(str(setting))
    rows = [(*condition, " ".join(sorted(found))) for condition, found in having.items()]
    return pd.DataFrame(sorted(rows), columns=["key", "value", "settings"])


def table(folder: Path) -> pd.DataFrame:
    """Return runs.csv of `folder` as `metrics.table` has it; a setting may lack its conditions."""
    found = pd.read_csv(folder / RUNS, low_memory=False, dtype=dict.fromkeys(OF_TEXT, str))
    found = found.fillna(dict.fromkeys(OF_TEXT, ""))
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    rows: Any = pd.read_csv(folder / CONDITIONS, dtype=str, keep_default_na=False).itertuples()
    for row in rows:
        for setting in row.settings.split():
            known[setting][row.key] = json.loads(row.value)
    told = found.setting.map(lambda setting: known.get(setting, {}))
    workers = told.map(lambda each: each.get("workers"))
    return found.assign(conditions=told, path=load.NOT_KEPT, workers=workers)


def published(folder: Path) -> pd.DataFrame:
    """Return published.csv of `folder`, rows of `published.Side`; empty without such a file."""
    file = folder / "published.csv"
    found = pd.read_csv(file) if file.is_file() else pd.DataFrame(columns=list(Side._fields))
    texts = {name: "" for name, kind in Side.__annotations__.items() if kind is str}
    return found.fillna(texts)


def judge(folder: Path, paper: str) -> list[Claim]:
    """Judge `paper` by the tables in `folder`.

    A claim that they cannot measure keeps its row of claims.csv, judged when its runs were there.
    """
    text = pd.read_csv(folder / CLAIMS, keep_default_na=False, dtype=str).to_dict("records")
    before = {_key(claim): claim for claim in map(_claim, text) if claim.measured}
    judged = claims.judge(table(folder), paper)
    return [claim if claim.measured else before.get(_key(claim), claim) for claim in judged]


def _key(claim: Claim) -> tuple[str, ...]:
    return claim.id, claim.text, claim.network, claim.scale


def _claim(row: dict[Any, Any]) -> Claim:
    numbers = {name: float(row[name] or "nan") for name in ("p", "p_holm")}
    runs, ours = tuple(row["runs"].split()), row["ours"] == "True"
    return Claim(**{**row, **numbers, "runs": runs, "ours": ours})
