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


def judge(
    table: pd.DataFrame, paper: str | None = None, kept: pd.DataFrame | None = None
) -> list[Claim]:
    """Every claim of `paper`, of all papers without one, by the rows of `metrics.table`.

    `kept` are such rows of before, whose controls count where `table` has no run of their
    experiment.
    Runs over packets and in virtual time are judged apart, likewise each scale; where no claim of
    a paper can be tested by one kind, it is told only if no other kind can test any either.
    """
    chosen = [each for each in papers() if paper in (None, each.name)]
    if not chosen:
        names = ", ".join(each.name for each in papers())
        raise ValueError(f"paper must be one of {names}, got {paper!r}")
    by = ["world", "scale"]
    kinds: list[Any] = list(table.groupby(by))
    before: dict[Any, pd.DataFrame] = {} if kept is None else dict(list(kept.groupby(by)))
    judged: list[Claim] = []
    for each in chosen:
        lists = [
            each.judge(rows, world, scale, before.get((world, scale)))
            for (world, scale), rows in kinds
        ]
        useful = [found for found in lists if any(claim.measured for claim in found)]
        for found in useful or lists[:1] or [each.judge(table, "", "")]:
            judged += found
    return judged
