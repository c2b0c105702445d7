"""Judges the papers' claims by runs: `python -m harness.claims [FOLDER] [--paper NAME]`.

Published numbers stand beside measured ones below. FOLDER is as for `harness.report`.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from harness.reporting.analysis import load, metrics
from harness.reporting.claims import Claim, counted, judge, lines, papers
from harness.reporting.claims.published import side_by_side

WIDTH = 160  # where the output is no terminal


def main() -> int:
    """0, or 2 where there are no runs."""
    parser = argparse.ArgumentParser(prog="python -m harness.claims", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results"))
    parser.add_argument("--paper", choices=[paper.name for paper in papers()])
    told = parser.parse_args()
    try:
        table = metrics.table(load.runs(told.folder))
    except load.NoRuns as error:
        print(error, file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    claims = judge(table, told.paper)
    seen = [claim for claim in claims if claim.runs] or claims
    console.print(_claims(seen))
    sides = side_by_side(table)
    sides = sides[sides.paper == told.paper] if told.paper else sides
    if len(sides):
        console.print(_sides(sides))
    if absent := Counter(claim.id for claim in claims if claim not in seen):
        console.print(f"not shown, as {told.folder} has no runs for them: {', '.join(absent)}")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in counted(seen).items())
    console.print(f"Of papers' claims, each decision once: {counts}")
    return 0


def _claims(claims: list[Claim]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "by", "claim", "packets", "virtual", "measured", "because", "p"):
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


if __name__ == "__main__":
    sys.exit(main())
