"""What ranks of a virtual world have once, though processes would each have their own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from harness.workloads.data.base import DataSet


@dataclass
class Once:
    """Objects that the ranks of a world share, each made by the first that needs it."""

    made: dict[str, Any] = field(default_factory=dict)

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]


@dataclass
class Read:
    """`data`, read once by all ranks."""

    data: DataSet

    def __post_init__(self) -> None:
        self.train, self.test = cache(self.data.train), cache(self.data.test)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)
