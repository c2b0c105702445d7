"""Calibrated input: a number confirms nothing that its constants were read from.

A published cell is told by columns of published.csv, as many as it takes. A study's fitted.yaml
says which settings of a run were read from which cells; runs that have these settings decide no
claim that is on such cells alone.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import pandas as pd

from harness.config import plain_yaml
from harness.studies import Study, studies

METRIC = "metric"
PublishedCell = Mapping[str, str]  # column: value; `id` is always there


class Fitted(NamedTuple):
    """Settings of a run, and the cells that their values were read from."""

    settings: Mapping[str, Any]  # by dotted key; a run that has all of them has the constants
    cells: Sequence[PublishedCell]
    how: str


@cache
def fitted() -> tuple[Fitted, ...]:
    """Return the fitted constants of all studies."""
    return tuple(each for study in studies() for each in fitted_of(study))


def fitted_of(study: Study) -> list[Fitted]:
    """Return the fitted constants of one study, as its fitted.yaml has them."""
    file = study.file("fitted.yaml")
    return [Fitted(**each) for each in plain_yaml.from_file(file)] if file else []


def inputs(rows: pd.DataFrame, known: Sequence[Fitted]) -> list[PublishedCell]:
    """Cells that constants of runs were read from; `rows` are of `metrics.table`."""
    of_runs = [told for told in rows.conditions if isinstance(told, dict)]
    return [
        cell
        for each in known
        if any(all(told.get(k) == v for k, v in each.settings.items()) for told in of_runs)
        for cell in each.cells
    ]


def are_of(cells: Sequence[PublishedCell], given: Sequence[PublishedCell]) -> list[bool]:
    """Tell of each of `cells` whether it is among those that are `given`."""
    return [any(each.items() <= cell.items() for each in given) for cell in cells]


def calibrated(cells: Sequence[PublishedCell], given: Sequence[PublishedCell]) -> str:
    """Why a claim on `cells` is by construction; "" where one of them is no input."""
    if not cells or not all(are_of(cells, given)):
        return ""
    return f"calibrated input: constants were read from {'; '.join(map(said, cells))}"


def partly(cells: Sequence[PublishedCell], given: Sequence[PublishedCell]) -> str:
    """Tell which of a claim's cells are inputs, where some are; "" without any."""
    found = [
        said(cell) for cell, is_input in zip(cells, are_of(cells, given), strict=True) if is_input
    ]
    return f"; constants were read from {', '.join(found)}" if found else ""


def said(cell: PublishedCell) -> str:
    """`table1 VGG-19 time`, the metric last."""
    return " ".join(
        [*(value for key, value in cell.items() if key != METRIC), cell.get(METRIC, "")]
    )
