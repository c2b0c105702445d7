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
    """Base class of a paper's predictor: one rule per metric predicts cells in their unit."""

    paper: ClassVar[str]  # value of the column `paper` of its cells
    title: ClassVar[str]  # in figures
    compares: ClassVar[Mapping[str, str]] = {}  # metric of each table that compares methods

    def __init__(self, bench: Bench, cells: Sequence[Measurement]) -> None:
        """Keep the bench and all the paper's cells, as some are published relative to others."""
        self.bench, self.cells = bench, cells

    @classmethod
    def published(cls) -> list[Measurement]:
        """Return all cells of published.csv; raise `BadMeasurement` if one cannot be read."""
        return read(cls._folder() / "published.csv")

    @classmethod
    @cache
    def own_bench(cls) -> Bench:
        """Return the testbed of the paper; it is read once."""
        return load_bench(cls._folder() / "testbed.yaml")

    @classmethod
    def _folder(cls) -> Path:
        return Path(str(sys.modules[cls.__module__].__file__)).parent

    @property
    @abstractmethod
    def _rules(self) -> Mapping[str, Callable[[Measurement], float | None]]:
        """The prediction rule of each metric."""

    def predict(self, cell: Measurement) -> float | None:
        """Predict a cell in its unit; return None if its metric is no time, rate or ratio."""
        rule = self._rules.get(cell.metric)
        return None if rule is None else rule(cell)


def predictors() -> dict[str, type[Predictor]]:
    """Return the predictor class of each paper that has one, by the paper's name."""
    return {module.PREDICTOR.paper: module.PREDICTOR for module in modules("predictor")}
