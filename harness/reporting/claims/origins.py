"""Detects circular claims: a number confirms nothing if constants were calibrated on it.

A study's fitted.yaml lists which settings of a run were read from which cells of published.csv.
Runs with these settings cannot decide a claim about such cells alone. A cell is identified by as
many columns of published.csv as are needed.
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
    """Settings of a run, the published cells that their values were read from, and how."""

    settings: Mapping[str, Any]  # by dotted key; a run with all of them uses the constants
    cells: Sequence[PublishedCell]
    how: str


@cache
def fitted() -> tuple[Fitted, ...]:
    """Return the fitted constants of all studies."""
    return tuple(each for study in studies() for each in fitted_of(study))


def fitted_of(study: Study) -> list[Fitted]:
    """Read a study's fitted.yaml; [] if it has none."""
    file = study.file("fitted.yaml")
    return [Fitted(**each) for each in plain_yaml.from_file(file)] if file else []


def inputs(rows: pd.DataFrame, known: Sequence[Fitted]) -> list[PublishedCell]:
    """Return the cells that constants of runs were read from; `rows` are of `metrics.table`."""
    of_runs = [told for told in rows.conditions if isinstance(told, dict)]
    return [
        cell
        for each in known
        if any(all(told.get(k) == v for k, v in each.settings.items()) for told in of_runs)
        for cell in each.cells
    ]


def are_of(cells: Sequence[PublishedCell], given: Sequence[PublishedCell]) -> list[bool]:
    """Return for each of `cells` whether it matches one of the `given` cells."""
    return [any(each.items() <= cell.items() for each in given) for cell in cells]


def calibrated(cells: Sequence[PublishedCell], given: Sequence[PublishedCell]) -> str:
    """Return why a claim on `cells` is by construction; "" unless all of them are inputs."""
    if not cells or not all(are_of(cells, given)):
        return ""
    return f"calibrated input: constants were read from {'; '.join(map(said, cells))}"


def partly(cells: Sequence[PublishedCell], given: Sequence[PublishedCell]) -> str:
    """Return a remark that names the cells that are inputs; "" if none is."""
    found = [
        said(cell) for cell, is_input in zip(cells, are_of(cells, given), strict=True) if is_input
    ]
    return f"; constants were read from {', '.join(found)}" if found else ""


def said(cell: PublishedCell) -> str:
    """Format a cell as its values, the metric last: `table1 VGG-19 time`."""
    return " ".join(
        [*(value for key, value in cell.items() if key != METRIC), cell.get(METRIC, "")]
    )
