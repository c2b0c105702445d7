"""A network that does not change."""

from dataclasses import dataclass

from profiles.limits import check_above_zero
from profiles.rated import Rated


@dataclass(frozen=True)
class Static(Rated):
    rate_mbit: float | tuple[float, ...]  # of every node, or a list with one rate per node

    def __post_init__(self) -> None:
        if not isinstance(self.rate_mbit, (int, float, str)):
            object.__setattr__(self, "rate_mbit", tuple(self.rate_mbit))
        if not self._rates():
            raise ValueError("rate_mbit must be a number > 0 or a list of them, got an empty list")
        for rate in self._rates():
            check_above_zero(rate_mbit=rate)
        super().__post_init__()

    def mbit(self, time_s: float, node: int) -> float:
        """The same at any time; raises ValueError for a node that has no rate in the list."""
        rates = self._rates()
        if not isinstance(self.rate_mbit, tuple):
            return rates[0]
        if node >= len(rates):
            raise ValueError(f"rate_mbit must have a rate for node {node}, got {list(rates)}")
        return rates[node]

    def range_mbit(self) -> tuple[float, float]:
        return min(self._rates()), max(self._rates())

    def _rates(self) -> tuple[float, ...]:
        return self.rate_mbit if isinstance(self.rate_mbit, tuple) else (self.rate_mbit,)
