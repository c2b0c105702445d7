"""Data that ranks of a virtual world share, though processes would each have their own."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.workloads.data.base import DataSet


@dataclass
class SharedDataSet:
    """`data`, read once for all ranks."""

    data: DataSet

    def __post_init__(self) -> None:
        self.train, self.test = cache(self.data.train), cache(self.data.test)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)
