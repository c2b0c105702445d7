"""Another profile with its rates or its delays multiplied by a factor."""

from dataclasses import dataclass

from profiles.base import Extremes, Link, Profile, Way
from profiles.limits import (
    LEAST_MBIT,
    MOST_DELAY_MS,
    MOST_MBIT,
    check_between,
    check_profile,
    is_number,
)

MOST_FACTOR = 1e6


@dataclass(frozen=True)
class Scaled:
    of: Profile
    factor: float = 1.0  # of rates, > 0
    delay_factor: float = 1.0  # of delays and their jitter, >= 0

    def __post_init__(self) -> None:
        check_profile(of=self.of)
        if not (is_number(self.factor) and 0 < self.factor <= MOST_FACTOR):
            raise ValueError(
                f"factor must be a number in (0, {MOST_FACTOR:g}], got {self.factor!r}"
            )
        check_between(0, MOST_FACTOR, delay_factor=self.delay_factor)
        bounds = self.extremes()
        if not LEAST_MBIT <= bounds.lowest_mbit <= bounds.highest_mbit <= MOST_MBIT:
            raise ValueError(
                f"factor must keep rates in [{LEAST_MBIT}, {MOST_MBIT}] Mbit/s, got {self.factor}, "
                f"which makes them {bounds.lowest_mbit:g} to {bounds.highest_mbit:g}"
            )
        if bounds.delay_ms > MOST_DELAY_MS:
            raise ValueError(
                f"delay_factor must keep delays in [0, {MOST_DELAY_MS}] ms, "
                f"got {self.delay_factor}, which makes them up to {bounds.delay_ms:g}"
            )
        if bounds.reorder and not self.delay_factor:
            raise ValueError("delay_factor must be above 0 where packets reorder, got 0")

    def link(self, time_s: float, node: int, way: Way) -> Link:
        rate, delay, jitter, loss, reorder = self.of.link(time_s, node, way)
        factor, delay_factor = self.factor, self.delay_factor
        return Link(rate * factor, delay * delay_factor, jitter * delay_factor, loss, reorder)

    def flows(self, time_s: float) -> int:
        return self.of.flows(time_s)

    def extremes(self) -> Extremes:
        of = self.of.extremes()
        return of._replace(
            lowest_mbit=of.lowest_mbit * self.factor,
            highest_mbit=of.highest_mbit * self.factor,
            delay_ms=of.delay_ms * self.delay_factor,
            jitter_ms=of.jitter_ms * self.delay_factor,
        )
