"""Selects the runs of a folder that a report, a claim or a table can measure.

A foreign run may hold files of the right form whose content cannot be measured. So each run is
measured alone first, and is left out with its reason if that fails. The `report`, `claims` and
`reproduce` commands use it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.typed import MOST_WORKERS
from harness.reporting import labels
from harness.reporting.analysis import load, metrics, proof, untrusted
from harness.reporting.figures import layout, link_load
from harness.reporting.page import surroundings


def runs(folder: Path | str) -> pd.DataFrame:
    """Return `load.runs`, unmeasurable ones left out as damaged; raise `load.NoRuns` if none."""
    found = load.runs(folder)
    rows: Any = found.itertuples()
    reasons = pd.Series(["" if row.left_out else _failure(row) for row in rows], found.index)
    failed = reasons != ""
    return found.assign(
        damaged=found.damaged.mask(failed, reasons), left_out=found.left_out.mask(failed, reasons)
    )


def _failure(run: Any) -> str:
    """Return why measuring a row of `load.runs` fails; "" if it does not."""
    path = run.path
    for name in ("method", *load.PAIR):  # runs are compared by these
        if pd.isna(getattr(run, name)):
            return f"config.yaml is damaged: it says no {name}"
    if pd.notna(run.workers) and not 1 <= run.workers <= MOST_WORKERS:
        return f"config.yaml is damaged: workers must be in [1, {MOST_WORKERS}]"
    of_files: list[tuple[str, Callable[[], object]]] = [
        ("steps.csv", lambda: metrics.row(run, load.steps(path), load.evaluations(path))),
        ("summary.json", lambda: proof.of_run(run)),
        ("config.yaml", lambda: labels.labels_of({str(run.method): load.config(path)})),
        ("environment.json", lambda: (surroundings.facts([path]), surroundings.forms([path]))),
        ("events.jsonl", lambda: link_load.competing(path, 0.0)),
        ("environment.json or events.jsonl", lambda: layout.read(Path(path))),
    ]
    for name, measure in of_files:
        try:
            measure()
        except untrusted.Damaged as error:
            return str(error)
        except Exception as error:  # a foreign file may raise any error
            return f"{name} is damaged: {untrusted.reason(error)}"
    return "" if (Path(path) / "status.json").exists() else "it was removed while it was read"
