"""The timing tables of a study: its cells, the testbed they are predicted from, and by which rules.

A study's timing.py has one, called `TIMING`; published.csv and testbed.yaml lie beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.fidelity import testbed
from harness.fidelity.cells import Cell, read
from harness.fidelity.predictor import Predictor
from harness.fidelity.testbed import Testbed
from harness.reporting.claims.base import (
    BY_CONSTRUCTION,
    NOT_DECIDABLE,
    PREDICTED,
    Claim,
    judged_claim,
)
from harness.reporting.claims.origins import PublishedCell, are_of, calibrated, partly
from harness.studies import modules


class TimingClaim(NamedTuple):
    """A paper's claim on time, and the verdict of replays on its testbed."""

    id: str
    text: str  # as claims.py has it, where runs decide it too
    holds: bool | None
    measured: str
    reason: str = ""  # not told of one that holds
    cells: Sequence[PublishedCell] | None = None  # that it is on; None: all of its id
    undecidable: str = ""  # why numbers of replays do not decide it


class Timing(NamedTuple):
    """A study's timing tables, and how they are predicted."""

    paper: str  # in that column of its cells
    title: str  # in figures
    folder: Path
    predictor: Callable[[Testbed, Sequence[Cell]], Predictor]
    judge: Callable[[Any], list[TimingClaim]]  # what the paper says of time, by the predictor
    compares: Mapping[str, str]  # tables that compare methods: their metric

    @property
    def testbed(self) -> Testbed:
        return testbed.load(self.folder / "testbed.yaml")

    def cells(self) -> list[Cell]:
        """All that the paper published, of time or not; `BadCell`."""
        return read(self.folder / "published.csv")

    def claims(self) -> list[Claim]:
        """Each held against the testbed, and no confirmation of what the testbed was read from."""
        bed = self.testbed
        return [judged(said, bed) for said in self.judge(self.predictor(bed, ()))]


def judged(said: TimingClaim, bed: Testbed) -> Claim:
    """The verdict on what replays say, by the same rules as of runs."""
    cells = [{"id": said.id}] if said.cells is None else said.cells
    given = [each.columns for each in (*bed.inputs, *bed.follows)]
    claim = judged_claim(said.id, said.text, said.holds, said.measured, said.reason)
    claim = claim._replace(network=PREDICTED, measured=said.measured + partly(cells, given))
    if made := calibrated(cells, given):
        return claim._replace(verdict=BY_CONSTRUCTION, reason=made, measured=said.measured)
    if why := said.undecidable or _left_out(cells, bed):
        return claim._replace(verdict=NOT_DECIDABLE, reason=why)
    return claim


def _left_out(cells: Sequence[PublishedCell], bed: Testbed) -> str:
    """Why a testbed predicts none of the cells that a claim is on; "" where it does."""
    whys = [
        next((each.why for each in bed.omissions if are_of([cell], [each.cells.columns])[0]), "")
        for cell in cells
    ]
    return "; ".join(dict.fromkeys(whys)) if cells and all(whys) else ""


def predicted(paper: str) -> list[Claim]:
    """Judge a paper's claims on time by replays; none where it has no timing tables."""
    return known[paper].claims() if paper in (known := timings()) else []


def timings() -> dict[str, Timing]:
    """The timing tables of all studies that have them, by paper."""
    return {module.TIMING.paper: module.TIMING for module in modules("timing")}
