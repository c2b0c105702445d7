"""A rate that fluctuates around its mean: an Ornstein-Uhlenbeck process.

Its exact transition draws it on a grid (Gillespie, 1996), so its law does not depend on the grid.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from profiles.limits import MOST_MBIT, check_between, check_lasting, check_mbit, check_order
from profiles.rated import DrawnRate


@dataclass(frozen=True)
class OrnsteinUhlenbeck(DrawnRate):
    """Profile that is stationary from time 0. Rates are clipped to [low_mbit, high_mbit]."""

    mean_mbit: float  # in [low_mbit, high_mbit]
    deviation_mbit: float  # standard deviation at any one time, before the cut, >= 0
    correlation_s: float  # after which the correlation with the past has fallen to 1/e
    low_mbit: float
    high_mbit: float
    step_s: float = 1.0  # of the grid; the rate holds in between

    def __post_init__(self) -> None:
        check_mbit(mean_mbit=self.mean_mbit, low_mbit=self.low_mbit, high_mbit=self.high_mbit)
        check_order(low_mbit=self.low_mbit, mean_mbit=self.mean_mbit)
        check_order(mean_mbit=self.mean_mbit, high_mbit=self.high_mbit)
        check_between(0, MOST_MBIT, deviation_mbit=self.deviation_mbit)
        check_lasting(correlation_s=self.correlation_s, step_s=self.step_s)
        super().__post_init__()

    def draws(self, random: Random) -> Iterator[tuple[float, float]]:
        kept = math.exp(-self.step_s / self.correlation_s)
        fresh = self.deviation_mbit * math.sqrt(1 - kept**2)
        away_mbit = self.deviation_mbit * random.gauss(0, 1)  # from the mean
        while True:
            rate_mbit = self.mean_mbit + away_mbit
            yield self.step_s, min(self.high_mbit, max(self.low_mbit, rate_mbit))
            away_mbit = kept * away_mbit + fresh * random.gauss(0, 1)

    def range_mbit(self) -> tuple[float, float]:
        return self.low_mbit, self.high_mbit
