"""Write the page of a paper: a report for each experiment, tables, and index.html."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from harness.records.outputs import OutputFolder, csv_text
from harness.reporting.analysis import agreement, decision, metrics
from harness.reporting.analysis import tables as shown
from harness.reporting.analysis.comparison import NO_BASELINE
from harness.reporting.analysis.grid import Grid
from harness.reporting.analysis.load import NoRuns
from harness.reporting.claims import Claim, counted, split
from harness.reporting.figures.agreement import agreement as agreement_figure
from harness.reporting.page import html, pictures
from harness.reporting.report import report
from harness.reproduce.gather import PaperTables, gather
from harness.reproduce.paper import Paper
from harness.reproduce.perform import pool_of


class PaperPage(NamedTuple):
    """Contents of paper.html; tables without rows are None."""

    decisions: Grid | None  # first method at the target, by setting
    judged: dict[str, int]  # number of the paper's claims by decision
    without_runs: dict[str, int]  # claims that no run decides, by id
    claims: Grid | None
    published: Grid | None
    counts: Grid
    reports: list[str]  # experiments
    agreement: Grid | None
    orders: Grid | None
    errors: Grid | None
    agreement_picture: pictures.EmbeddedFigure | None
    left_out: Grid | None
    files: list[str]  # csv


def write(paper: Paper, results: Path) -> Path:
    """Write reports, CSV tables and index.html, and return its path; NoRuns if no run counts."""
    tables, out = gather(paper, results), OutputFolder.beside(results, paper.name)
    reported = _reports(paper.experiments, results)
    write_csv(tables, out)
    page = html.render("paper.html", title=paper.title, page=_page(tables, reported))
    return out.write("index.html", page)


def write_csv(tables: PaperTables, out: OutputFolder) -> None:
    """Write a csv for each table that has rows; remove older files of the other tables."""
    for name, table in tables._asdict().items():
        if len(table):
            out.write(f"{name}.csv", csv_text(table, float_format="%.6g"))
        else:
            out.remove(f"{name}.csv")


def _reports(experiments: list[str], results: Path) -> list[str]:
    """Write the reports in parallel; return the names of experiments whose report has content."""
    with pool_of(len(experiments)) as pool:
        found = pool.map(_reported, [results / name for name in experiments])
        return [name for name, any_run in zip(experiments, found, strict=True) if any_run]


def _reported(folder: Path) -> bool:
    """Report on `folder` and keep the printed text; False if there was nothing to report."""
    if not folder.is_dir():
        return False
    with redirect_stdout(io.StringIO()) as text:
        try:
            report(folder)
            reported = True
        except NoRuns as nothing:
            print(nothing)
            reported = False
    OutputFolder.beside(folder, "report").write("report.txt", text.getvalue())
    return reported


def _page(tables: PaperTables, reported: list[str]) -> PaperPage:
    pairs, told = tables.agreement, split(_claims(tables.claims))
    return PaperPage(
        decisions=_of(decisions(tables.runs), shown.grid),
        judged=counted(told.decided),
        without_runs=told.without_runs,
        claims=shown.claims(told.decided) if told.decided else None,
        published=_of(tables.published, shown.published),
        counts=shown.grid(counts(tables.runs)),
        reports=reported,
        agreement=_of(pairs, shown.agreement),
        orders=_of(agreement.orders(pairs), shown.orders),
        errors=_of(pairs, lambda rows: shown.errors(agreement.by(rows, "condition"))),
        agreement_picture=None if pairs.empty else _picture(pairs),
        left_out=_of(tables.left_out, shown.grid),
        files=[name for name, each in tables._asdict().items() if len(each)],
    )


def decisions(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each setting of `runs` with a target: the method that reaches it first."""
    found = []
    for _, rows in runs.groupby("setting", sort=False):
        baseline = metrics.baseline_of(rows) or NO_BASELINE
        decided = decision.decide(rows, rows.target.iloc[0], baseline)
        if decided.decides:
            of_setting = {name: rows[name].iloc[0] for name in ("experiment", "world", "condition")}
            first = " ".join(decision.sentences(decided))
            found.append(of_setting | {"who reaches the target first": first})
    return pd.DataFrame(found)


def _of(rows: pd.DataFrame, told: Callable[[pd.DataFrame], Grid]) -> Grid | None:
    return None if rows.empty else told(rows)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    split = rows.assign(runs=rows.runs.str.split().map(tuple))
    return [Claim(*row) for row in split.itertuples(index=False)]


def _picture(pairs: pd.DataFrame) -> pictures.EmbeddedFigure:
    caption = "Mean step in virtual time against that over real packets."
    return pictures.of(agreement_figure(pairs), caption)


def counts(runs: pd.DataFrame) -> pd.DataFrame:
    """Count the valid runs of each experiment."""
    by = ["experiment", "world", "scale"]
    return runs.groupby(by, sort=False).size().reset_index(name="runs")
