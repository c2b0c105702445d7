"""Claims of papers, judged by runs: `judge`. Each study declares its claims in its claims.py."""

from typing import Any

import pandas as pd

from harness.reporting.claims.base import Claim, PaperClaims
from harness.reporting.claims.lines import counted, lines, split
from harness.studies import modules

__all__ = ["Claim", "counted", "judge", "lines", "papers", "split"]


def papers() -> list[PaperClaims]:
    """Return the `PaperClaims` of every study that has a claims.py."""
    return [module.PAPER for module in modules("claims")]


def judge(table: pd.DataFrame, paper: str | None = None) -> list[Claim]:
    """Judge the claims of `paper`, or of all papers, by the rows of `metrics.table`.

    Runs over packets and runs in virtual time are judged separately, and so is each scale. A paper
    whose claims no group of runs can test is listed once. Raise ValueError for an unknown paper.
    """
    chosen = [each for each in papers() if paper in (None, each.name)]
    if not chosen:
        names = ", ".join(each.name for each in papers())
        raise ValueError(f"paper must be one of {names}, got {paper!r}")
    kinds: list[Any] = list(table.groupby(["world", "scale"]))
    judged: list[Claim] = []
    for each in chosen:
        lists = [each.judge(rows, world, scale) for (world, scale), rows in kinds]
        useful = [found for found in lists if any(claim.measured for claim in found)]
        for found in useful or lists[:1] or [each.judge(table, "", "")]:
            judged += found
    return judged
