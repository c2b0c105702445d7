"""Predict the published timing cells of a study from its testbed.

A study's predictor.py has one subclass of `Predictor`, called `PREDICTOR`. The files published.csv
and testbed.yaml lie beside it. `study fidelity` compares the predictions with the paper.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

from harness.fidelity.bench import Bench, load_bench
from harness.fidelity.measurement import Measurement, read
from harness.studies import modules


class Predictor(ABC):
    """One rule for each metric of a paper; a rule predicts a cell in the cell's unit."""

    paper: ClassVar[str]  # value of the column `paper` of its cells
    title: ClassVar[str]  # in figures
    compares: ClassVar[Mapping[str, str]] = {}  # tables that compare methods: the metric of each

    def __init__(self, bench: Bench, cells: Sequence[Measurement]) -> None:
        """`cells` are all cells of the paper: some are published relative to others."""
        self.bench, self.cells = bench, cells

    @classmethod
    def published(cls) -> list[Measurement]:
        """Return all cells that the paper published, timing or not; `BadMeasurement`."""
        return read(cls._folder() / "published.csv")

    @classmethod
    @cache
    def own_bench(cls) -> Bench:
        """Load the testbed of the paper."""
        return load_bench(cls._folder() / "testbed.yaml")

    @classmethod
    def _folder(cls) -> Path:
        return Path(str(sys.modules[cls.__module__].__file__)).parent

    @property
    @abstractmethod
    def _rules(self) -> Mapping[str, Callable[[Measurement], float | None]]:
        """Return the rules by metric."""

    def predict(self, cell: Measurement) -> float | None:
        """Predict a cell in its unit; None if its metric is no time, rate or ratio of them."""
        rule = self._rules.get(cell.metric)
        return None if rule is None else rule(cell)


def predictors() -> dict[str, type[Predictor]]:
    """Return the predictors of all studies that have one, by paper."""
    return {module.PREDICTOR.paper: module.PREDICTOR for module in modules("predictor")}
