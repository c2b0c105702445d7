"""How much longer collectives take than the cost model says, or less long: seeded, 1 in the mean.

An exchange may have a factor for all its collectives, beside that which each has of its own.
Factors are log-normal: never below 0, and skewed as stalls are. With s^2 = ln(1 + relative^2), the
exponential of a normal of mean -s^2 / 2 and standard deviation s has mean 1 and standard deviation
`relative`, both exactly. Half of what messages take beside their bytes is sure: the other half has
a factor of twice the deviation.
"""

from dataclasses import dataclass, field
from math import exp, log1p, sqrt

import numpy as np

MOST_NOISE = 1.0  # of the time itself
MOST_LATENCY_NOISE = 3.0  # of what messages take beside their bytes


@dataclass
class Noise:
    """Factors of a run's collectives, one for all workers; deviations of 0: each is 1.

    A collective's own is of deviation `relative`, an exchange's of `exchange`.

    What messages take beside their bytes is the work of processors that are busy otherwise, and
    has a factor more: of one message of deviation `latency`, and of n, which are late independently
    of each other, of that over the root of n. The n-th of an exchange is told by seed, exchange
    and n alone, so a run that goes on from a checkpoint has the same, and methods that differ have
    the same in exchanges of as many.
    """

    relative: float = 0.0
    seed: int = 0
    latency: float = 0.0
    exchange: float = 0.0
    _exchange: int = field(default=-1, init=False)
    of_exchange: float = field(default=1.0, init=False)  # factor of the one that goes on

    def __post_init__(self) -> None:
        self.begin(0)

    def begin(self, exchange: int) -> None:
        """The next factors are the first of this exchange; no change when it has begun."""
        if (self.relative or self.latency or self.exchange) and exchange != self._exchange:
            self._exchange = exchange
            self._draws = np.random.default_rng([self.seed, exchange])
            self._latency_draws = np.random.default_rng([self.seed, exchange, 1])
            self._rank_draws = np.random.default_rng([self.seed, exchange, 2])
            if self.exchange:
                draws = np.random.default_rng([self.seed, exchange, 3])
                self.of_exchange = _drawn(self.exchange, draws)

    def factor(self) -> float:
        """Draw a factor on the time of one collective, beside that of its exchange."""
        return _drawn(self.relative, self._draws) if self.relative else 1.0

    def latency_factor(self, messages: int) -> float:
        """Draw a factor on the latency of `messages` messages; once for each `factor`."""
        return _late(self.latency / sqrt(messages), self._latency_draws) if self.latency else 1.0

    def early(self, workers: int, messages: int) -> list[float]:
        """Messages by which each worker is done before the last one is.

        Each waits for so many of its own in a row, late as those of `latency_factor`.
        """
        if not self.latency or not messages:
            return [0.0] * workers
        relative = self.latency / sqrt(messages)
        took = [messages * _late(relative, self._rank_draws) for _ in range(workers)]
        return [max(took) - each for each in took]


def _late(relative: float, draws: np.random.Generator) -> float:
    """Half is sure: of 15 short all-gathers in a row none takes less than 0.55 of their median."""
    return (1 + _drawn(2 * relative, draws)) / 2


def _drawn(relative: float, draws: np.random.Generator) -> float:
    deviation = sqrt(log1p(relative**2))
    return exp(deviation * draws.standard_normal() - deviation**2 / 2)
