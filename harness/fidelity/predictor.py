"""What every paper's rules have in common: a rule for each metric, applied to a cell."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from harness.fidelity.cells import Cell
from harness.fidelity.testbed import Testbed


class Predictor(ABC):
    """`cells` are all that there are, for those that are told relative to others."""

    def __init__(self, testbed: Testbed, cells: Sequence[Cell]) -> None:
        self.testbed, self.cells = testbed, cells

    @property
    @abstractmethod
    def _rules(self) -> Mapping[str, Callable[[Cell], float | None]]:
        """Rules for predicting a cell, by metric."""

    def predict(self, cell: Cell) -> float | None:
        """A cell's figure in its unit; None for what is no time or cannot be told."""
        rule = self._rules.get(cell.metric)
        return None if rule is None else rule(cell)
