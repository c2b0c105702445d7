"""Seeded noise on the time of collectives, with mean 1.

Each exchange may have a factor for all its collectives, and each collective its own. Factors are
log-normal: never negative, and skewed as stalls are. With s^2 = ln(1 + relative^2), the exponential
of a normal of mean -s^2 / 2 and standard deviation s has mean 1 and standard deviation `relative`,
both exactly. Half of the time that messages take beside their bytes is certain. The other half has
a factor with twice the deviation.
"""

from dataclasses import dataclass, field
from math import exp, log1p, sqrt

import numpy as np

MOST_NOISE = 1.0  # of the time itself
MOST_LATENCY_NOISE = 3.0  # of what messages take beside their bytes


@dataclass
class Noise:
    """Random factors on the time of a run's collectives, equal for all workers.

    A collective has its own factor with deviation `relative`, and each exchange one with deviation
    `exchange`. The latency of messages is processor work and has another factor. For n independent
    messages its deviation is `latency` / sqrt(n). With deviations of 0 all factors are 1. Factor n
    of an exchange depends only on seed, exchange and n. So a resumed run draws the same factors. So
    do different methods in exchanges with equally many collectives.
    """

    relative: float = 0.0
    seed: int = 0
    latency: float = 0.0
    exchange: float = 0.0
    _exchange: int = field(default=-1, init=False)
    of_exchange: float = field(default=1.0, init=False)  # factor of the current exchange

    def __post_init__(self) -> None:
        self.begin(0)

    def begin(self, exchange: int) -> None:
        """Seed all factors of exchange number `exchange`. Do nothing if it began last."""
        if (self.relative or self.latency or self.exchange) and exchange != self._exchange:
            self._exchange = exchange
            self._draws = np.random.default_rng([self.seed, exchange])
            self._latency_draws = np.random.default_rng([self.seed, exchange, 1])
            self._rank_draws = np.random.default_rng([self.seed, exchange, 2])
            if self.exchange:
                draws = np.random.default_rng([self.seed, exchange, 3])
                self.of_exchange = _drawn(self.exchange, draws)

    def factor(self) -> float:
        """Draw a factor on one collective's time, beside `of_exchange`; 1.0 if `relative` is 0."""
        return _drawn(self.relative, self._draws) if self.relative else 1.0

    def latency_factor(self, messages: int) -> float:
        """Draw a factor on the latency of `messages` in a row, once per `factor`; 1.0 if unset."""
        return _late(self.latency / sqrt(messages), self._latency_draws) if self.latency else 1.0

    def early(self, workers: int, messages: int) -> list[float]:
        """Return for each worker how much earlier than the last it finishes, in mean message times.

        Each of `workers` waits for `messages` consecutive messages with latencies of its own, drawn
        like `latency_factor`. All are 0.0 without latency noise or messages.
        """
        if not self.latency or not messages:
            return [0.0] * workers
        relative = self.latency / sqrt(messages)
        took = [messages * _late(relative, self._rank_draws) for _ in range(workers)]
        return [max(took) - each for each in took]


def _late(relative: float, draws: np.random.Generator) -> float:
    """Draw a factor of at least 0.5 on a message's latency, with mean 1 and deviation `relative`.

    Half of the latency is fixed, and half is log-normal. In measurements, none of 15 consecutive
    short all-gathers took less than 0.55 of their median.
    """
    return (1 + _drawn(2 * relative, draws)) / 2


def _drawn(relative: float, draws: np.random.Generator) -> float:
    """Draw a log-normal factor with mean 1 and standard deviation `relative`."""
    deviation = sqrt(log1p(relative**2))
    return exp(deviation * draws.standard_normal() - deviation**2 / 2)
