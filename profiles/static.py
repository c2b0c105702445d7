"""A network that does not change."""

from dataclasses import dataclass

from profiles.base import Link
from profiles.limits import check_above_zero, check_path


@dataclass(frozen=True)
class Static:
    rate_mbit: float | tuple[float, ...]  # of every node, or a list with one rate per node
    delay_ms: float = 0.0  # one way
    jitter_ms: float = 0.0
    loss: float = 0.0  # share of packets, in [0, 1)

    def __post_init__(self) -> None:
        if not isinstance(self.rate_mbit, (int, float, str)):
            object.__setattr__(self, "rate_mbit", tuple(self.rate_mbit))
        if not self._rates():
            raise ValueError("rate_mbit must be a number > 0 or a list of them, got an empty list")
        for rate in self._rates():
            check_above_zero(rate_mbit=rate)
        check_path(self.delay_ms, self.jitter_ms, self.loss)

    def link(self, time_s: float, node: int) -> Link:
        """The same at any time; raises ValueError for a node that has no rate in the list."""
        rates = self._rates()
        if not isinstance(self.rate_mbit, tuple):
            node = 0
        elif node >= len(rates):
            raise ValueError(f"rate_mbit must have a rate for node {node}, got {list(rates)}")
        return Link(rates[node], self.delay_ms, self.jitter_ms, self.loss)

    def flows(self, time_s: float) -> int:
        return 0

    def range_mbit(self) -> tuple[float, float]:
        return min(self._rates()), max(self._rates())

    def _rates(self) -> tuple[float, ...]:
        return self.rate_mbit if isinstance(self.rate_mbit, tuple) else (self.rate_mbit,)
