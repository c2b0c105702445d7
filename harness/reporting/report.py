"""Compares the methods of a sweep: prints tables, draws figures and writes web pages."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from harness.records.outputs import OutputFolder, csv_text
from harness.reporting import labels, measurable, page
from harness.reporting.analysis import (
    agreement,
    agreement_report,
    comparison,
    figure_catalog,
    load,
    proof,
    tables,
    terminal,
)
from harness.reporting.analysis.comparison import Comparison, compare, differences, notes
from harness.reporting.analysis.figure_catalog import Drawing
from harness.reporting.figures import styles, theme
from harness.reporting.figures.style_file import ReportStyle
from harness.reporting.page import pictures
from harness.reporting.page.pictures import Pictures

__all__ = ["Comparison", "compare", "draw", "report"]


def report(
    folder: Path | str,
    baseline: str | None = None,
    out: Path | str | None = None,
    agreement_alone: bool = False,
    pdf: bool = False,
    runs: pd.DataFrame | None = None,
    style: ReportStyle | None = None,
) -> Path:
    """Compare the runs in `folder`: print results, write figures, csv and pages; return where.

    `out` is the report's folder, by default beside `folder`. Its `index.html` is the page of the
    experiment, or a list of several. `baseline` is a method's name or label, by default the dense
    method. `agreement_alone` only compares virtual time with real packets. `pdf` writes each figure
    as PDF too. `runs` are the rows of `load.runs` to report, by default all. Raise `load.NoRuns` if
    no run counts.
    """
    chosen = measurable.runs(folder) if runs is None else runs
    with styles.of_report(style or ReportStyle()):
        runs = labels.readable(chosen, style.names if style else {})
        return _report(runs, Path(folder), baseline, out, agreement_alone, pdf)


def _report(
    runs: pd.DataFrame,
    folder: Path,
    baseline: str | None,
    out: Path | str | None,
    agreement_alone: bool,
    pdf: bool,
) -> Path:
    place = OutputFolder(Path(out)) if out else OutputFolder.beside(folder, "report")
    console = terminal.console()
    runs = comparison.newest(runs)
    counted = runs[runs.left_out == ""]
    groups = [rows for _, rows in counted.groupby("setting", sort=False)]
    wanted = dict(zip(runs.name, runs.method, strict=True)).get(baseline, baseline)
    found = [] if agreement_alone else [compare(rows, wanted) for rows in groups]
    decided = [line for each in found for line in terminal.decision(each, found)]
    for line in [*decided, *terminal.left_out(runs)]:
        console.print(line, markup=False, soft_wrap=True)
    if counted.empty:
        raise load.NoRuns(f"no succeeded and valid run in {folder}")
    by_experiment = counted.groupby("experiment", sort=False)
    pairs = {str(name): agreement.paired(rows) for name, rows in by_experiment}
    if found:
        _all(console, runs, found, pairs, place, pdf)
    agreement_report.show(console, pd.concat(pairs.values(), ignore_index=True), place, pdf)
    for line in decided:  # repeat it, as the tables have scrolled it away
        console.print(line, markup=False, soft_wrap=True)
    return place.path


def draw(compared: Comparison) -> dict[str, Callable[[], theme.Figure]]:
    """Return calls that draw the figures of a comparison, by file name; methods keep their colours.

    A call raises ValueError if the figure has no data.
    """

    def drawn(drawing: Drawing) -> theme.Figure:
        with styles.of_page(compared.names):
            return drawing.draw()

    found = figure_catalog.of_comparison(compared)
    return {name: partial(drawn, drawing) for name, drawing in found.items()}


def _all(
    console: Console,
    runs: pd.DataFrame,
    found: list[Comparison],
    pairs: dict[str, pd.DataFrame],
    out: OutputFolder,
    pdf: bool,
) -> None:
    drawn: dict[str, Pictures] = {}
    for each in found:
        _show(console, each, differences(each, found))
        place = out / each.name if len(found) > 1 else out
        with styles.of_page(comparison.methods(each, found)):
            for name, table in (("comparison", each.table), ("proof", each.proofs)):
                place.write(f"{name}.csv", csv_text(each.named(table)))
            drawn[each.name] = _save(console, figure_catalog.of_comparison(each), place, pdf)
    for name in runs.experiment.unique():
        of_experiment = [each for each in found if each.runs.experiment.iloc[0] == name]
        whole = figure_catalog.of_experiment(of_experiment)
        if of_experiment:
            with styles.of_page(comparison.methods(of_experiment[0], found)):
                drawn[str(name)] = _save(console, whole, out, pdf, f"{name}-")
    pages = page.write(runs, found, drawn, pairs, out)
    kinds = "svg and pdf" if pdf else "svg"
    console.print(f"\nfigures as {kinds}, tables as csv: {out.path}", markup=False, soft_wrap=True)
    for path in pages:
        console.print(str(path), markup=False, soft_wrap=True)


def _show(console: Console, compared: Comparison, apart: list[str]) -> None:
    run = compared.runs.iloc[0]
    console.print(f"\n{compared.title}", markup=False, style="bold")
    if apart:
        console.print(f"apart by: {', '.join(apart)}", markup=False)
    if compared.decision.decides:
        metric, target = compared.decision.metric, compared.decision.target
        console.print(f"target: {metric} {target:g}", markup=False)
    console.print(terminal.table(tables.comparison(compared.table)))
    for note in notes(compared):
        console.print(f"  {note}", markup=False)
    if run.simulated:
        instead = (load.config(run.path).get("network") or {}).get("in_place_of")
        why = f", in place of network={instead}" if instead else ""
        said = f"\nno proof: the network was simulated, no packets were sent{why}"
        console.print(said, markup=False)
        return
    console.print("\nproof: the worst of each method's runs")
    worst = proof.by_method(compared.proofs, list(compared.table.method))
    console.print(terminal.table(tables.proof(worst)))


def _save(
    console: Console, wanted: dict[str, Drawing], out: OutputFolder, pdf: bool, prefix: str = ""
) -> Pictures:
    """Save every figure (`pdf`: also as PDF) and return them embedded; print those without data."""
    found: Pictures = {}
    for name, drawing in wanted.items():
        try:
            figure = drawing.draw()
        except theme.NothingToDraw as missing:
            console.print(f"  no figure {name}: {missing}", markup=False)
            continue
        svg, *_ = theme.save(figure, out, f"{prefix}{name}", pdf)
        found[name] = pictures.of(figure, drawing.caption, svg.read_bytes())
    return found
