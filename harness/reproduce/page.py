"""What is left of a paper's runs: a report for each experiment, tables, and one page."""

import html
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd

from harness import agreement
from harness.load import NoRuns
from harness.report import report
from harness.reproduce.gather import Tables, gather
from harness.reproduce.paper import Paper

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px } 
th, td { padding: .2rem .6rem; text-align: left }
tr { border-bottom: 1px solid #ccc; vertical-align: top } .scroll { overflow-x: auto }
"""
SHOWN = ["id", "text", "verdict", "measured", "reason", "network", "scale"]  # of a claim
BESIDE = ["id", "model", "network", "method", "metric", "published", "measured", "low", "high"]
BESIDE += ["unit", "bound", "comparable", "note", "kind", "scale"]  # of `published.Side`


def write(paper: Paper, results: Path) -> Path:
    """Reports of all experiments, the csv of each of `Tables` and index.html; returns the last.

    Raises `load.NoRuns` when no run of the paper counts.
    """
    tables, out = gather(paper, results), results / paper.name
    reported = [name for name in paper.experiments if _reported(results / name)]
    write_csv(tables, out)
    (out / "index.html").write_text(_page(paper, tables, reported))
    return out / "index.html"


def write_csv(tables: Tables, out: Path) -> None:
    """One file for each table that has rows."""
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables._asdict().items():
        (out / f"{name}.csv").unlink(missing_ok=True)
        if len(table):
            table.to_csv(out / f"{name}.csv", index=False, float_format="%.6g")


def _reported(folder: Path) -> bool:
    """Whether there was something to report; what is printed is kept beside it."""
    if not folder.is_dir():
        return False
    (folder / "report").mkdir(exist_ok=True)
    with (folder / "report" / "report.txt").open("w") as text, redirect_stdout(text):
        try:
            report(folder)
        except NoRuns as nothing:
            print(nothing)
            return False
    return True


def _page(paper: Paper, tables: Tables, reported: list[str]) -> str:
    title = html.escape(paper.title)
    parts = [
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>",
        f"<h1>{title}</h1>",
        "<h2>Claims</h2>",
        _table(tables.claims[SHOWN]),
        "<h2>Published and measured</h2>",
        _table(tables.published[BESIDE]),
        "<h2>Experiments</h2>",
        _table(counts(tables)),
        f"<p>Reports: {', '.join(map(_link, reported))}.</p>",
        *_agreement(tables.agreement),
        "<h2>Runs that do not count</h2>",
        _table(tables.left_out),
        "<h2>Tables</h2>",
        "<p>" + ", ".join(_csv(name) for name, each in tables._asdict().items() if len(each)),
    ]
    return "\n".join(parts) + "\n"


def counts(tables: Tables) -> pd.DataFrame:
    """How many runs of each experiment count."""
    by = ["experiment", "network", "scale"]
    return tables.runs.groupby(by, sort=False).size().reset_index(name="runs")


def _agreement(pairs: pd.DataFrame) -> list[str]:
    if pairs.empty:
        return []
    errors = agreement.by(pairs, "condition").set_index("condition")
    shown = ["median", "worst", "density_median", "density_worst"]
    errors[shown] = (100 * errors[shown]).round(1)
    told = "Errors of virtual time over packets, in %, of the mean step and of the mean density."
    return ["<h2>Virtual time against packets</h2>", f"<p>{told}</p>", _table(errors.reset_index())]


def _link(experiment: str) -> str:
    return f'<a href="../{experiment}/report/">{experiment}</a>'


def _csv(name: str) -> str:
    return f'<a href="{name}.csv">{name}.csv</a>'


def _table(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "<p>None.</p>"
    return f'<div class="scroll">{rows.to_html(index=False, border=0, na_rep="")}</div>'
