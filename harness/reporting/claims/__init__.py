"""What papers claim, decided by runs: `judge`. The claims are those of the studies."""

from typing import Any

import pandas as pd

from harness.reporting.claims.base import Claim, PaperClaims
from harness.reporting.claims.lines import counted, lines, split
from harness.studies import modules

__all__ = ["Claim", "counted", "judge", "lines", "papers", "split"]


def papers() -> list[PaperClaims]:
    """The papers of all studies that have a claims.py."""
    return [module.PAPER for module in modules("claims")]


def judge(table: pd.DataFrame, paper: str | None = None) -> list[Claim]:
    """Judge the claims of `paper`, or of all papers, by the rows of `metrics.table`.

    Runs over packets, runs in virtual time and each scale are judged apart. If no claim of a paper
    can be tested by one of them, it is listed only if no other can test any either.
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
