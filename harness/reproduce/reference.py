"""A paper's results as they are kept with the project: tables, small figures, and their origin."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from harness import report
from harness.config.scales import LAPTOP, PAPER
from harness.config.settings import BadSetting, Settings
from harness.config.sweep import OnlyAStandIn
from harness.records.outputs import OutputFolder
from harness.records.run_directory import read_json
from harness.report import Comparison
from harness.reporting.analysis import metrics
from harness.reporting.claims.base import NotDecidable
from harness.reporting.figures.agreement import agreement as agreement_figure
from harness.reporting.figures.theme import Figure, NothingToDraw, save
from harness.reproduce.gather import PaperTables, comparisons, gather, runs_of
from harness.reproduce.page import counts, write_csv, write_tables
from harness.reproduce.paper import Paper
from harness.reproduce.partly import Kept, Part, anew, merged, parts_of, read, runs_before
from harness.reproduce.perform import is_virtual
from harness.studies import studies

FOLDER = Path(__file__).resolve().parents[2] / "results" / "reference"
FIGURES = ("time_to_target", "quality_curves", "throughput", "throughput_time", "quality_over_time")
Drawings = Mapping[str, Callable[[pd.DataFrame], Figure]]  # by file name; of `metrics.table`
KINDS = ("svg", "png")  # of files; the second is of results older than the first


def write(
    paper: Paper,
    results: Path,
    overrides: list[str],
    whole: Paper | None = None,
    folder: Path = FOLDER,
) -> list[Path]:
    """Replaces `folder`/PAPER by what the runs in `results` say; returns what was written.

    `whole` has all experiments where `paper` has some: tables and figures of the others stay, where
    there are any, and so do those of models and worlds of these that no run is of, or of which
    fewer were run again. What `whole` has no more does not stay. Controls that stay count for
    claims of what ran again. Raises `load.NoRuns` when no run counts, and leaves what is there.
    """
    place = OutputFolder(folder, (paper.name,))
    out = place.path
    tables = gather(paper, results, runs_before(out) if whole else None)
    compared = comparisons(paper, results)
    _check_figures(paper, compared)
    before = read(out) if whole else {}
    origin = _origin_before(out) if before else []
    gone: set[Part] = set()
    ran = set(parts_of(tables.runs))
    if whole and before:
        ran = anew(before["runs"], tables.runs)
        gone = _gone(before["runs"], whole, paper.experiments)
        for name, model, world in ran | gone:
            drawn = f"{name}-{world}-{model}-*"
            for figure in (each for kind in KINDS for each in out.glob(f"{drawn}.{kind}")):
                figure.unlink()
        write_tables(merged(before, _as_kept(tables), paper.experiments, gone), place)
    else:
        shutil.rmtree(out, ignore_errors=True)
        write_csv(tables, place)
    parts = dict(zip(tables.runs.setting, parts_of(tables.runs), strict=True))
    compared = [each for each in compared if parts[each.runs.setting.iloc[0]] in ran]
    if own := _drawings(paper):
        _draw_own(own, metrics.table(runs_of(paper, results)), place)
    else:
        _draw(paper, tables, compared, place)
    _draw_agreement(paper, place)
    runs = [path for each in compared for path in each.runs.path]
    only = ["--only", *paper.experiments] if whole else []
    again = _again(before["runs"], ran) if before else []
    again += sorted({name for name, *_ in gone} - set(paper.experiments))
    place.write("README.md", _readme(paper, out, runs, [*overrides, *only], origin, again))
    return sorted(out.iterdir())


def _gone(before: pd.DataFrame, whole: Paper, again: list[str]) -> set[Part]:
    """Parts that have rows, and no run in `whole` as it is now.

    Models and worlds are looked up for the experiments `again` alone.
    """
    known = {
        (name, str(settings["model.name"]), _world(settings))
        for name in again
        for scale in (PAPER, LAPTOP)
        for settings in _described(whole.only([name]), scale)
    }
    return {
        part
        for part in parts_of(before)
        if part[0] not in whole.experiments or (part[0] in again and part not in known)
    }


def _world(settings: Settings) -> str:
    """Name a run's world; virtual time in place of packets that cannot be here is "packets"."""
    virtual = is_virtual(settings) and not settings["network"].get("in_place_of")
    return "virtual" if virtual else "packets"


def _described(paper: Paper, scale: str) -> list[Settings]:
    """Runs of `paper`; none at a scale that it does not have."""
    try:
        return paper.described([f"scale={scale}"]).runs
    except OnlyAStandIn:
        return []


def _as_kept(tables: PaperTables) -> Kept:
    with TemporaryDirectory() as place:
        write_csv(tables, OutputFolder(Path(place)))
        return read(Path(place))


def _check_figures(paper: Paper, compared: list[Comparison]) -> None:
    """BadSetting for a figure that no report of its experiment has."""
    for name, asked in paper.figures.items():
        found = [report.draw(each) for each in compared if each.runs.experiment.iloc[0] == name]
        known = sorted({figure for drawn in found for figure in drawn})
        for figure in asked:
            if known and figure not in known:
                raise BadSetting(f"figures of {name} must be of {', '.join(known)}, got {figure}")


def _draw(paper: Paper, tables: PaperTables, compared: list[Comparison], out: OutputFolder) -> None:
    names = {row.setting: _name(row) for row in _rows(tables.comparison)}
    for each in compared:
        drawn, run = report.draw(each), each.runs.iloc[0]
        for figure in (*FIGURES, *paper.figures.get(run.experiment, ())):
            if figure in drawn:
                _save(drawn[figure], out, f"{names[run.setting]}-{figure}")


def _drawings(paper: Paper) -> Drawings:
    """The figures of its own that its study has in place of those of every comparison."""
    study = next((each for each in studies() if each.name == paper.name), None)
    module = study and study.module("drawings")
    return module.DRAWINGS if module else {}


def _draw_own(drawings: Drawings, table: pd.DataFrame, out: OutputFolder) -> None:
    for name, draw in drawings.items():
        with suppress(NotDecidable):  # runs that it is of are not there
            _save(partial(draw, table), out, name)


def _draw_agreement(paper: Paper, out: OutputFolder) -> None:
    if (table := out.path / "agreement.csv").is_file():
        pairs = pd.read_csv(table)
        title = f"{paper.name}: virtual time against packets"
        _save(lambda: agreement_figure(pairs, title), out, "agreement")


def _name(setting: Any) -> str:
    """File name for the figures of a row of `PaperTables.comparison`."""
    parts = [setting.experiment, setting.world, setting.model, setting.condition]
    return "-".join(re.sub("[^a-zA-Z0-9_.]+", "_", part) for part in parts if part)


def _save(draw: Callable[[], Figure], out: OutputFolder, name: str) -> None:
    """Write `name`.svg to `out`, unless there is nothing to draw."""
    with suppress(NothingToDraw):
        save(draw(), out, name)


def _again(before: pd.DataFrame, ran: set[Part]) -> list[str]:
    """Experiments that `ran` has, with their models and worlds where it has not all of them."""
    stay = set(parts_of(before)) - ran
    found = []
    for name in dict.fromkeys(name for name, _, _ in sorted(ran)):
        own = sorted(part[1:] for part in ran if part[0] == name)
        left = [part[1:] for part in stay if part[0] == name]
        models = {model for model, _ in left}
        said = [f"{model} {world}" if model in models else model for model, world in own]
        found.append(f"{name} ({', '.join(dict.fromkeys(said))})" if left else name)
    return found


def _readme(
    paper: Paper, out: Path, runs: list[str], asked: list[str], before: list[str], again: list[str]
) -> str:
    """README for the contents of `out`; `before` is the origin of older contents that stay.

    All of them but those `again`.
    """
    told = [read_json(Path(path) / "environment.json") or {} for path in runs]
    command = " ".join(["python -m harness.reproduce", paper.name, *asked])
    if before:
        said = f"Before, and since then all but {', '.join(again)}:"
        older = ["", *before]
        while said in older:  # what is above it is written again
            older = older[older.index(said) + 1 :]
        before = ["", said, *older]
    tables = read(out)
    counted = _rows(counts(tables["runs"]))
    return "\n".join([
        f"# {paper.title}",
        "",
        f"Written by `{command} --reference`, from runs that `{command}` did.",
        "Times are emulated seconds. Nothing here was edited by hand.",
        "",
        *_origin(told),
        *before,
        "",
        "| file | rows |",
        "|---|---|",
        *(f"| `{name}.csv` | {len(rows)} |" for name, rows in tables.items()),
        "",
        "| experiment | network | runs |",
        "|---|---|---|",
        *(f"| {row.experiment} | {row.world} | {row.runs} |" for row in counted),
        "",
    ])  # fmt: skip


def _origin_before(out: Path) -> list[str]:
    """Lines of the old README that tell where its contents came from."""
    lines = (out / "README.md").read_text().splitlines()
    kept = [line for line in lines if line.startswith(("- ", "Before, "))]
    return [part for line in kept for part in (["", line, ""] if line[0] == "B" else [line])]


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
