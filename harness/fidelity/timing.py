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
from harness.reporting.claims.base import Claim
from harness.studies import modules


class Timing(NamedTuple):
    """A study's timing tables, and how they are predicted."""

    paper: str  # in that column of its cells
    title: str  # in figures
    folder: Path
    predictor: Callable[[Testbed, Sequence[Cell]], Predictor]
    judge: Callable[[Any], list[Claim]]  # what the paper says of time, by the predictor
    compares: Mapping[str, str]  # tables that compare methods: their metric

    @property
    def testbed(self) -> Testbed:
        return testbed.load(self.folder / "testbed.yaml")

    def cells(self) -> list[Cell]:
        """All that the paper published, of time or not; `BadCell`."""
        return read(self.folder / "published.csv")

    def claims(self) -> list[Claim]:
        """Each held against the testbed."""
        return self.judge(self.predictor(self.testbed, ()))


def timings() -> dict[str, Timing]:
    """The timing tables of all studies that have them, by paper."""
    return {module.TIMING.paper: module.TIMING for module in modules("timing")}
