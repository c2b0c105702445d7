"""A paper's results as they are kept with the project: tables, small figures, and their origin."""

import re
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from harness import report
from harness.figures.agreement import agreement as agreement_figure
from harness.figures.look import Figure, NothingToDraw
from harness.records import read_json
from harness.report import Comparison
from harness.reproduce.gather import Tables, comparisons, gather
from harness.reproduce.page import counts, write_csv
from harness.reproduce.paper import Paper

FOLDER = Path(__file__).resolve().parents[2] / "results" / "reference"
FIGURES = ("speedup", "throughput", "quality_curves")  # of `report.draw`
PIXELS_PER_IN = 75


def write(paper: Paper, results: Path, overrides: list[str], folder: Path = FOLDER) -> list[Path]:
    """Replaces `folder`/PAPER by what the runs in `results` say; returns what was written.

    Raises `load.NoRuns` when no run of the paper counts, and leaves what is there.
    """
    tables, out = gather(paper, results), folder / paper.name
    shutil.rmtree(out, ignore_errors=True)
    write_csv(tables, out)
    compared = comparisons(paper, results)
    _draw(paper, tables, compared, out)
    runs = [path for each in compared for path in each.runs.path]
    (out / "README.md").write_text(_readme(paper, tables, runs, overrides))
    return sorted(out.iterdir())


def _draw(paper: Paper, tables: Tables, compared: list[Comparison], out: Path) -> None:
    names = {row.setting: _name(row) for row in _rows(tables.comparison)}
    for each in compared:
        drawn = report.draw(each)
        for figure in FIGURES:
            _save(drawn[figure], out / f"{names[each.runs.setting.iloc[0]]}-{figure}.png")
    if len(tables.agreement):
        title = f"{paper.name}: virtual time against packets"
        _save(lambda: agreement_figure(tables.agreement, title), out / "agreement.png")


def _name(setting: Any) -> str:
    """Of the figures of a row of `Tables.comparison`."""
    parts = [setting.experiment, setting.network, setting.model, setting.condition]
    return "-".join(re.sub("[^a-zA-Z0-9_.]+", "_", part) for part in parts if part)


def _save(draw: Callable[[], Figure], file: Path) -> None:
    """Unless there is nothing to draw."""
    with suppress(NothingToDraw):
        draw().savefig(file, dpi=PIXELS_PER_IN)


def _readme(paper: Paper, tables: Tables, runs: list[str], overrides: list[str]) -> str:
    told = [read_json(Path(path) / "environment.json") or {} for path in runs]
    command = " ".join(["python -m harness.reproduce", paper.name, *overrides])
    written = {name: len(rows) for name, rows in tables._asdict().items() if len(rows)}
    return "\n".join([
        f"# {paper.title}",
        "",
        f"Written by `{command} --reference`, from runs that `{command}` did.",
        "Times are emulated seconds. Nothing here was edited by hand.",
        "",
        *_origin(told),
        "",
        "| file | rows |",
        "|---|---|",
        *(f"| `{name}.csv` | {rows} |" for name, rows in written.items()),
        "",
        "| experiment | network | runs |",
        "|---|---|---|",
        *(f"| {row.experiment} | {row.network} | {row.runs} |" for row in _rows(counts(tables))),
        "",
    ])  # fmt: skip


def _origin(environments: list[dict[str, Any]]) -> list[str]:
    """Commits, machines and versions, with how many runs each has."""
    commits = Counter((each.get("git") or {}).get("commit", "unknown") for each in environments)
    machines = Counter(f"{each.get('cpu')}, {each.get('cores')} cores" for each in environments)
    versions = Counter(str((each.get("versions") or {}).get("torch")) for each in environments)
    kinds = {"Commit": commits, "Machine": machines, "PyTorch": versions}
    return [
        f"- {kind}: {', '.join(f'{name} ({runs} runs)' for name, runs in found.most_common())}"
        for kind, found in kinds.items()
    ]


def _rows(table: pd.DataFrame) -> Any:
    return table.itertuples()
