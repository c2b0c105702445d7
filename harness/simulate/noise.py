"""How much longer collectives take than the cost model says, or less long: seeded, 1 in the mean.

Factors are log-normal: never below 0, and skewed as stalls are. With s^2 = ln(1 + relative^2), the
exponential of a normal of mean -s^2 / 2 and standard deviation s has mean 1 and standard deviation
`relative`, both exactly.
"""

from dataclasses import dataclass, field
from math import exp, log1p, sqrt

import numpy as np

MOST_NOISE = 1.0  # of the time itself


@dataclass
class Noise:
    """Factors of a run's collectives, one for all workers; `relative` 0: each is 1.

    The n-th of an exchange is told by seed, exchange and n alone, so a run that goes on from a
    checkpoint has the same, and methods that differ have the same in exchanges of as many.
    """

    relative: float = 0.0
    seed: int = 0
    _exchange: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        self._deviation = sqrt(log1p(self.relative**2))
        self.begin(0)

    def begin(self, exchange: int) -> None:
        """The next factor is the first of this exchange; no change when it has begun."""
        if self._deviation and exchange != self._exchange:
            self._exchange = exchange
            self._draws = np.random.default_rng([self.seed, exchange])

    def factor(self) -> float:
        """Of the time of one collective."""
        if not self._deviation:
            return 1.0
        deviation = self._deviation
        return exp(deviation * self._draws.standard_normal() - deviation**2 / 2)
