"""Judges the papers' claims by runs: `python -m harness.claims [FOLDER] [--paper NAME]`.

Beside them is what replays on the papers' testbeds predict, as `python -m harness.fidelity` tells.
Published numbers stand beside measured ones below. FOLDER is as for `harness.report`; with a paper
that has timing tables it may hold no runs.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness import studies
from harness.fidelity.timing import predicted, timings
from harness.reporting import measurable
from harness.reporting.analysis import load, metrics, terminal
from harness.reporting.claims import Claim, counted, judge, lines, papers, split
from harness.reporting.claims.base import PREDICTED
from harness.reporting.claims.published import side_by_side

WIDTH = 160  # where the output is no terminal
COLUMNS = ("id", "by", "claim", "packets", "virtual", "predicted", "measured", "because", "p")


def main() -> int:
    """Print verdicts and published numbers; the exit status.

    2 where there are no runs, 1 where runs are left out as damaged, which are named, else 0.
    """
    first = argparse.ArgumentParser(add_help=False)
    more = "FOLDER/papers has further studies, which are programs"
    first.add_argument("--studies", metavar="FOLDER", help=more)
    if (own := first.parse_known_args()[0].studies) is not None:
        try:
            studies.add(own)
        except ValueError as error:
            print(f"--studies: {error}", file=sys.stderr)
            return 2
    parser = argparse.ArgumentParser("python -m harness.claims", None, __doc__, parents=[first])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results"))
    names = [paper.name for paper in papers()]
    parser.add_argument("--paper", choices=names)
    told = parser.parse_args()
    try:
        runs = _runs(told.folder, needed=told.paper not in timings())
    except load.NoRuns as error:
        print(error, file=sys.stderr)
        return 2
    table = metrics.table(runs)
    judged = {name: _judged(table, name, told.paper) for name in names}
    without = [name for name, own in judged.items() if own and not _has_something(own)]
    claims = [claim for name, own in judged.items() if name not in without for claim in own]
    sides = side_by_side(table)
    sides = sides[sides.paper == told.paper] if told.paper else sides
    if claims or len(sides):
        _show(claims, sides, told.folder)
    for name in without:
        count = len({(claim.id, claim.text) for claim in judged[name]})
        print(f"{name}: no run of {told.folder} belongs to one of its {count} claims")
    for line in terminal.left_out(runs):
        terminal.console(WIDTH).print(line, soft_wrap=True)
    return int((runs.damaged != "").any())


def _has_something(claims: list[Claim]) -> bool:
    """True if a run or a prediction says something of one of `claims`."""
    return any(claim.runs or claim.network == PREDICTED for claim in claims)


def _runs(folder: Path, needed: bool) -> pd.DataFrame:
    """Return the runs below a folder; an empty table if there are none and none are `needed`."""
    try:
        return measurable.runs(folder)
    except load.NoRuns:
        if needed:
            raise
        return pd.DataFrame(columns=list(load.RunRow._fields))


def _judged(table: pd.DataFrame, name: str, asked: str | None) -> list[Claim]:
    """A paper's claims by runs, and by replays where it is asked for or has runs."""
    if asked not in (None, name):
        return []
    by_runs = judge(table, name)
    told = asked == name or any(claim.runs for claim in by_runs)
    return by_runs + (predicted(name) if told else [])


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
        told = (line.packets, line.virtual, line.predicted, line.measured, line.reason, line.p_holm)
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


if __name__ == "__main__":
    sys.exit(main())
