"""Command `study claims [FOLDER] [--paper NAME]`: judge the papers' claims by runs.

FOLDER is as for `harness.report`, or results/reference/STUDY, whose kept tables are judged.
Published and measured numbers follow below the verdicts.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.cli.arguments import Arguments
from harness.cli.commands import CommandHelp
from harness.reporting import kept, measurable
from harness.reporting.analysis import load, metrics, terminal
from harness.reporting.claims import Claim, counted, judge, lines, papers, split
from harness.reporting.claims.published import side_by_side

WIDTH = 160  # columns of output that is not a terminal
COLUMNS = ("id", "by", "claim", "packets", "virtual", "measured", "because", "p")


COMMAND = CommandHelp(
    "Judge the papers' claims by the runs in FOLDER; default: results.",
    {"--paper PAPER": "of this paper alone"},
    words="[FOLDER]",
    overrides=False,
)


def main(given: Arguments) -> int:
    """Print verdicts and published numbers; return the exit status.

    It is 2 if there are no runs, 1 if damaged runs were left out (their names are printed), else 0.
    """
    names = [paper.name for paper in papers()]
    asked, folder = given.choice("--paper", names), Path((given.words or ["results"])[0])
    try:
        runs = None if kept.is_kept(folder) else measurable.runs(folder)
    except load.NoRuns as error:
        print(error, file=sys.stderr)
        return 2
    table = kept.table(folder) if runs is None else metrics.table(runs)
    judge_ = partial(judge, table) if runs is not None else partial(kept.judge, folder)
    judged = {name: judge_(name) for name in names if asked in (None, name)}
    without = [name for name, own in judged.items() if not any(claim.runs for claim in own)]
    claims = [claim for name, own in judged.items() if name not in without for claim in own]
    sides = side_by_side(table) if runs is not None else kept.published(folder)
    sides = sides[sides.paper == asked] if asked else sides
    if claims or len(sides):
        _show(claims, sides, folder)
    for name in without:
        count = len({(claim.id, claim.text) for claim in judged[name]})
        print(f"{name}: no run of {folder} belongs to one of its {count} claims")
    if runs is None:
        return 0
    for line in terminal.left_out(runs):
        terminal.console(WIDTH).print(line, soft_wrap=True)
    return int((runs.damaged != "").any())


def _show(claims: list[Claim], sides: pd.DataFrame, folder: Path) -> None:
    console = terminal.console(WIDTH)
    seen, absent = split(claims)
    console.print(_claims(seen))
    if len(sides):
        console.print(_sides(sides))
    if absent:
        console.print(f"not shown, as {folder} has no runs for them: {', '.join(absent)}")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in counted(seen).items())
    console.print(f"Of papers' claims, each decision once: {counts}")


def _claims(claims: list[Claim]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, overflow="fold")
    for line in lines(claims):
        told = (line.packets, line.virtual, line.measured, line.reason, line.p_holm)
        table.add_row(line.id, line.by, line.text, *told)
    return table


def _sides(sides: pd.DataFrame) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "by", "network", "method", "metric", "published", "measured", "unit"):
        justify: Any = "right" if name in ("published", "measured") else "left"
        table.add_column(name, overflow="fold", justify=justify)
    table.add_column("note", overflow="fold")
    rows: Any = sides.itertuples()
    for row in rows:
        by = " ".join(filter(None, (row.kind, row.scale)))
        numbers = (_number(row.published), {"low": "> ", "high": "< "}.get(row.bound, ""))
        measured = numbers[1] + _number(row.measured)
        said = (row.id, by, row.network, row.method, row.metric, numbers[0], measured, row.unit)
        table.add_row(*said, row.note)
    return table


def _number(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:.4g}"
