"""Noise of a real path on the rates of another profile.

In each hold the rate is divided by a lognormal factor, so transfer times are lognormal. Sometimes
it is divided by `slow_factor` as well: a burst of other traffic, or a retransmission.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from profiles.base import Extremes, Link, Profile, Way
from profiles.limits import (
    MOST_MBIT,
    check_between,
    check_choice,
    check_lasting,
    check_profile,
    check_share,
    check_whole,
)
from profiles.segments import value_at

MOST_DEVIATIONS = 3  # the lognormal factor is cut off there
MOST_SLOW_FACTOR = 1e3


@dataclass(frozen=True)
class Noisy:
    """Profile that multiplies another profile's rates by noise. Delays, losses and flows stay."""

    of: Profile
    deviation: float  # of the logarithm of the factor, in [0, 1]
    hold_s: float  # between draws
    slow_share: float = 0.0  # of holds that are slow, in [0, 1)
    slow_factor: float = 1.0  # what their rates are divided by, >= 1
    seed: int = 0  # with the node, all that the noise depends on; >= 0
    shared: bool = False  # one series for all nodes

    def __post_init__(self) -> None:
        check_profile(of=self.of)
        check_between(0, 1, deviation=self.deviation)
        check_lasting(hold_s=self.hold_s)
        check_share(slow_share=self.slow_share)
        check_between(1, MOST_SLOW_FACTOR, slow_factor=self.slow_factor)
        check_whole(0, seed=self.seed)
        check_choice((True, False), shared=self.shared)
        highest_mbit = self.extremes().highest_mbit
        if highest_mbit > MOST_MBIT:
            raise ValueError(
                f"deviation must keep rates in (0, {MOST_MBIT}] Mbit/s, got {self.deviation}, "
                f"which makes them up to {highest_mbit:g}"
            )

    def link(self, time_s: float, node: int, way: Way) -> Link:
        link = self.of.link(time_s, node, way)
        series = "noise/all" if self.shared else f"noise/{node}"
        factor = value_at(self, series, max(0.0, time_s))
        return link._replace(rate_mbit=link.rate_mbit / factor)

    def draws(self, random: Random) -> Iterator[tuple[float, float]]:
        while True:
            away = random.gauss(0, 1)
            cut = min(MOST_DEVIATIONS, max(-MOST_DEVIATIONS, away))
            slow = self.slow_factor if random.random() < self.slow_share else 1.0
            yield self.hold_s, math.exp(self.deviation * cut) * slow

    def flows(self, time_s: float) -> int:
        return self.of.flows(time_s)

    def extremes(self) -> Extremes:
        of, most = self.of.extremes(), math.exp(MOST_DEVIATIONS * self.deviation)
        slow = self.slow_factor if self.slow_share else 1.0
        return of._replace(
            lowest_mbit=of.lowest_mbit / most / slow, highest_mbit=of.highest_mbit * most
        )
