"""Write a study's results into the project: tables, small figures and a README with their origin.

`results/reference/STUDY` is replaced as a whole, from runs of one commit.
"""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.settings import BadSetting
from harness.records.outputs import OutputFolder, csv_text
from harness.records.run_directory import read_json
from harness.reporting import kept, report
from harness.reporting.analysis import metrics
from harness.reporting.claims.base import NotDecidable
from harness.reporting.figures.agreement import agreement as agreement_figure
from harness.reporting.figures.theme import Figure, NothingToDraw, save
from harness.reporting.report import Comparison
from harness.reproduce.gather import PaperTables, comparisons, gather, runs_of
from harness.reproduce.page import counts, write_csv
from harness.reproduce.paper import Paper
from harness.studies import studies

FOLDER = Path(__file__).resolve().parents[2] / "results" / "reference"
FIGURES = ("time_to_target", "quality_curves", "throughput", "throughput_time", "quality_over_time")
UNKNOWN = "unknown"
Figures = Mapping[str, Callable[[], Figure]]  # by file name


def write(paper: Paper, results: Path, overrides: list[str], folder: Path = FOLDER) -> list[Path]:
    """Replace `folder`/PAPER by the tables and figures of `results`; return the files written.

    Raise `load.NoRuns` if no run counts, and `BadSetting` if the runs are of several commits or if
    a report lacks a figure that the paper asks for. The folder is then unchanged.
    """
    tables, compared = gather(paper, results), comparisons(paper, results)
    environments = [
        read_json(Path(path) / "environment.json") or {}
        for each in compared
        for path in each.runs.path
    ]
    commits = Counter((each.get("git") or {}).get("commit", UNKNOWN) for each in environments)
    if len(commits) > 1:
        found = ", ".join(f"{name[:12]} ({runs} runs)" for name, runs in commits.most_common())
        raise BadSetting(
            f"runs in {results} must be of one commit, got {found}; give results=FOLDER with a new "
            "folder and run all experiments again"
        )
    _check_figures(paper, compared)
    figures = [_figures(paper, each, tables.comparison) for each in compared]
    place = OutputFolder(folder, (paper.name,))
    shutil.rmtree(place.path, ignore_errors=True)
    write_csv(tables, place)
    place.write(kept.CONDITIONS, csv_text(kept.conditions(metrics.table(runs_of(paper, results)))))
    study = next((each for each in studies() if each.name == paper.name), None)
    module = study and study.module("drawings")
    if own := getattr(module, "DRAWINGS", {}):  # they replace the figures of comparisons
        table = metrics.table(runs_of(paper, results))
        figures = [{name: partial(draw, table) for name, draw in own.items()}]
    if len(tables.agreement):
        title = f"{paper.name}: virtual time against packets"
        pairs = pd.read_csv(place.path / "agreement.csv")
        figures.append({"agreement": lambda: agreement_figure(pairs, title)})
    for drawn in figures:
        for name, draw in drawn.items():
            with suppress(NothingToDraw, NotDecidable):  # some runs may be missing
                save(draw(), place, name)
    place.write("README.md", _readme(paper, tables, environments, overrides))
    return sorted(place.path.iterdir())


def _check_figures(paper: Paper, compared: Sequence[Comparison]) -> None:
    """Raise `BadSetting` if the paper asks for a figure that no report of its experiment has."""
    for experiment, asked in paper.figures.items():
        own = [each for each in compared if each.runs.experiment.iloc[0] == experiment]
        known = sorted({figure for each in own for figure in report.draw(each)})
        for figure in asked:
            if known and figure not in known:
                must = f"figures of {experiment} must be of {', '.join(known)}"
                raise BadSetting(f"{must}, got {figure}")


def _figures(paper: Paper, compared: Comparison, comparison: pd.DataFrame) -> Figures:
    """Return the figures to keep of one setting, by file name."""
    drawn, run = report.draw(compared), compared.runs.iloc[0]
    setting = comparison[comparison.setting == run.setting].iloc[0]
    parts = (setting.experiment, setting.world, setting.model, setting.condition)
    name = "-".join(re.sub("[^a-zA-Z0-9_.]+", "_", part) for part in parts if part)
    kept = (*FIGURES, *paper.figures.get(run.experiment, ()))
    return {f"{name}-{figure}": drawn[figure] for figure in kept if figure in drawn}


def _readme(
    paper: Paper, tables: PaperTables, environments: list[dict[str, Any]], overrides: list[str]
) -> str:
    """Return the README: command, origin of the results, and numbers of rows and runs."""
    command = " ".join(["python -m harness study reproduce", paper.name, *overrides])
    origin = {
        "Commit": [(each.get("git") or {}).get("commit", UNKNOWN) for each in environments],
        "Machine": [f"{each.get('cpu')}, {each.get('cores')} cores" for each in environments],
        "PyTorch": [str((each.get("versions") or {}).get("torch")) for each in environments],
    }
    rows: Any = counts(tables.runs).itertuples()
    sizes = {name: len(table) for name, table in tables._asdict().items() if len(table)}
    return "\n".join([
        f"# {paper.title}",
        "",
        f"Written by `{command} --reference`, from runs that `{command}` did.",
        "Times are emulated seconds. Nothing here was edited by hand.",
        "",
        *(
            f"- {kind}: {', '.join(f'{k} ({n} runs)' for k, n in Counter(found).most_common())}"
            for kind, found in origin.items()
        ),
        "",
        "| file | rows |",
        "|---|---|",
        *(f"| `{name}.csv` | {size} |" for name, size in sizes.items()),
        "",
        "| experiment | network | runs |",
        "|---|---|---|",
        *(f"| {row.experiment} | {row.world} | {row.runs} |" for row in rows),
        "",
    ])  # fmt: skip
