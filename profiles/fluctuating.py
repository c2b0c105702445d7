"""A network whose rates change at random: piecewise constant, with uniform rates and lengths.

DC2 (Abdelmoniem & Canini, 2021) limits each worker at random by a profile that all methods share.
The paper does not give rates and lengths.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from profiles.limits import check_lasting, check_mbit, check_order
from profiles.rated import DrawnRate


@dataclass(frozen=True)
class Fluctuating(DrawnRate):
    low_mbit: float
    high_mbit: float  # >= low_mbit
    min_s: float  # shortest segment
    max_s: float  # longest segment, >= min_s

    def __post_init__(self) -> None:
        check_mbit(low_mbit=self.low_mbit, high_mbit=self.high_mbit)
        check_order(low_mbit=self.low_mbit, high_mbit=self.high_mbit)
        check_lasting(min_s=self.min_s, max_s=self.max_s)
        check_order(min_s=self.min_s, max_s=self.max_s)
        super().__post_init__()

    def draws(self, random: Random) -> Iterator[tuple[float, float]]:
        uniform, low, high = random.uniform, self.low_mbit, self.high_mbit
        shortest_s, longest_s = self.min_s, self.max_s
        while True:
            length_s = uniform(shortest_s, longest_s)
            rate_mbit = uniform(low, high)
            # rounding may put a draw just outside
            yield length_s, low if rate_mbit < low else high if rate_mbit > high else rate_mbit

    def range_mbit(self) -> tuple[float, float]:
        return self.low_mbit, self.high_mbit
