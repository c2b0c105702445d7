"""Criteo's display advertising challenge (Kaggle, 2014): seven days of clicks in train.txt."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.workloads.data.base import Shape, data_folder, not_found
from harness.workloads.data.columns import CATEGORIES, COUNTS, DAYS, ClickTable, days, read
from harness.workloads.data.kept import cache_folder

LAYOUT = "criteo/train.txt, as in the challenge's dac.tar.gz (its test.txt has no labels)"


@dataclass(frozen=True)
class Criteo:
    """45,840,617 lines in order of time: six days for training, the last one for testing.

    They are parsed once, which takes minutes, into 160 bytes each in `cache`.
    """

    name: str = "criteo"
    folder: str | None = None
    rows: int = 10_000  # different categories of a column, a missing one included
    cache: str | None = None
    classes: ClassVar[int] = 2
    shape: ClassVar[Shape] = (COUNTS + CATEGORIES, 1)
    metric: ClassVar[str] = "accuracy"
    published: ClassVar[int] = 45_840_617 * (DAYS - 1) // DAYS

    def __post_init__(self) -> None:
        if not 2 <= self.rows <= 1 << 24:  # whole numbers in float32
            raise ValueError(f"rows must be in [2, {1 << 24}], got {self.rows}")

    def check(self) -> None:
        if not self._text.is_file():
            raise not_found(self.name, data_folder(self.folder), "no criteo/train.txt", LAYOUT)

    def train(self) -> ClickTable:
        return self._splits()[0]

    def test(self) -> ClickTable:
        return self._splits()[1]

    @property
    def _text(self) -> Path:
        return data_folder(self.folder) / "criteo" / "train.txt"

    def _splits(self) -> tuple[ClickTable, ClickTable]:
        self.check()
        return days(read(self._text, cache_folder(self.cache), self.rows))
