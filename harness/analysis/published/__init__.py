"""The papers' numbers beside measured ones: a row for each published number that runs reproduce.

`results/published/*.csv` has the numbers; here is which runs say the same. Ratios, densities and
shares of one run over another are comparable at every scale, with the paper's number of workers in
mind; samples/s, seconds and accuracies only at scale=paper, as at scale=laptop a small net trains
on other data in the model's place. `comparable` says which.
"""

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd

from harness.analysis.published import dc2, dct, netsenseml
from harness.analysis.published.numbers import Cell
from harness.claims.base import NotTestable, Runs

PUBLISHED = Path(__file__).parents[3] / "results" / "published"
PAPERS = {"dc2": dc2, "netsenseml": netsenseml, "dct": dct}  # by the name of their files there
WORDS = {"two": 2.0}  # that stand for a number


class Side(NamedTuple):
    """A published number and what was measured of the same; a row of `side_by_side`."""

    paper: str
    id: str
    model: str
    network: str  # of the paper
    method: str
    metric: str
    published: float  # nan where the paper has none: not reached
    measured: float  # mean over seeds
    low: float  # its 95 % bootstrap interval; nan below two seeds
    high: float
    unit: str
    bound: str  # low | high | unknown: a time was censored, see `ratios.Ratio`
    comparable: bool
    note: str  # why not comparable, or what differs
    kind: str  # packets | virtual: of the runs
    scale: str
    runs: tuple[str, ...]


def side_by_side(table: pd.DataFrame, folder: Path | str = PUBLISHED) -> pd.DataFrame:
    """Rows of `Side`, by `table` of `metrics.table`; what no run says is left out.

    Packets and virtual time have rows of their own, likewise each scale.
    """
    cells = [
        (cell, paper)
        for name, paper in PAPERS.items()
        for cell in paper.cells(_rows(Path(folder) / f"{name}.csv"))
    ]
    kinds: list[Any] = list(table.groupby(["network", "scale"]))
    found = [
        side
        for (kind, scale), rows in kinds
        for cell, paper in cells
        if (side := _side(cell, paper, rows, kind, scale)) is not None
    ]
    return pd.DataFrame(found, columns=list(Side._fields))


def _rows(file: Path) -> list[Any]:
    read = pd.read_csv(file, dtype=str, keep_default_na=False)
    return list(read.itertuples())


def _side(cell: Cell, paper: ModuleType, rows: pd.DataFrame, kind: str, scale: str) -> Side | None:
    runs = Runs(rows, paper.WORKERS, scale)
    try:
        found = cell.measure(runs)
    except NotTestable:
        return None
    row, used = cell.row, rows[rows.run_id.isin(runs.seen)]
    comparable = not cell.absolute or scale == "paper"
    return Side(
        paper=row.paper,
        id=row.id,
        model=row.model,
        network=row.network,
        method=row.method,
        metric=row.metric,
        published=WORDS.get(row.value, float(pd.to_numeric(row.value, errors="coerce"))),
        measured=found.mean,
        low=found.low,
        high=found.high,
        unit=row.unit,
        bound=found.bound,
        comparable=comparable,
        note="; ".join(_differs(used, comparable) + paper.notes(row, used, found)),
        kind=kind,
        scale=scale,
        runs=tuple(runs.seen),
    )


def _differs(rows: pd.DataFrame, comparable: bool) -> list[str]:
    """What is not as in the paper."""
    row = rows.iloc[0]
    return [] if comparable else [f"absolute, of {row.model} on {row.dataset}"]
