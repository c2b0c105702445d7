"""The papers' claims, decided by runs: `judge`. A paper is one file of this package."""

import importlib
import pkgutil
from typing import Any

import pandas as pd

from harness.claims.base import NOT_TESTABLE, Claim, Paper

__all__ = ["Claim", "judge", "papers"]


def papers() -> list[Paper]:
    """Every paper that has a file here."""
    files = [importlib.import_module(f"{__name__}.{each.name}") for each in _files()]
    return [file.PAPER for file in files if hasattr(file, "PAPER")]


def _files() -> list[pkgutil.ModuleInfo]:
    return sorted(pkgutil.iter_modules(__path__), key=lambda each: each.name)


def judge(table: pd.DataFrame, paper: str | None = None) -> list[Claim]:
    """Every claim of `paper`, of all papers without one, by the rows of `metrics.table`.

    Runs over packets and in virtual time are judged apart, likewise each scale; where no claim of
    a paper can be tested by one kind, it is told only if no other kind can test any either.
    """
    chosen = [each for each in papers() if paper in (None, each.name)]
    if not chosen:
        names = ", ".join(each.name for each in papers())
        raise ValueError(f"paper must be one of {names}, got {paper!r}")
    kinds: list[Any] = list(table.groupby(["network", "scale"]))
    judged: list[Claim] = []
    for each in chosen:
        lists = [each.judge(rows, *key) for key, rows in kinds]
        useful = [found for found in lists if {claim.verdict for claim in found} != {NOT_TESTABLE}]
        for found in useful or lists[:1] or [each.judge(table, "", "")]:
            judged += found
    return judged
