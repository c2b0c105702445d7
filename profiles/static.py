"""A network that does not change."""

from dataclasses import dataclass

from profiles.base import Way
from profiles.limits import as_tuple, check_mbit
from profiles.play import Rates
from profiles.rated import Rated


@dataclass(frozen=True)
class Static(Rated):
    rate_mbit: float | tuple[float, ...]  # of every node, or a list with one rate per node

    def __post_init__(self) -> None:
        if isinstance(self.rate_mbit, (int, float)):
            rates: tuple[float, ...] = (self.rate_mbit,)
        else:
            rates = as_tuple("rate_mbit", self.rate_mbit, "one rate per node, or one number")
            object.__setattr__(self, "rate_mbit", rates)
        for rate in rates:
            check_mbit(rate_mbit=rate)
        super().__post_init__()

    def mbit(self, time_s: float, node: int) -> float:
        """Return the rate of `node`'s link; ValueError if the list has no rate for it."""
        if not isinstance(self.rate_mbit, tuple):
            return self.rate_mbit
        if node >= len(self.rate_mbit):
            rates = list(self.rate_mbit)
            raise ValueError(f"rate_mbit must have a rate for node {node}, got {rates}")
        return self.rate_mbit[node]

    def play(self, node: int, way: Way) -> Rates:
        link = self.link(0.0, node, way)
        return Rates(link, iter([(float("inf"), link.rate_mbit)]))

    def series(self, node: int, way: Way) -> float:
        return self.mbit(0.0, node)

    def range_mbit(self) -> tuple[float, float]:
        if not isinstance(self.rate_mbit, tuple):
            return self.rate_mbit, self.rate_mbit
        return min(self.rate_mbit), max(self.rate_mbit)
