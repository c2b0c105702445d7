"""Another profile with its rates multiplied by a factor."""

from dataclasses import dataclass

from profiles.base import Extremes, Link, Profile, Way
from profiles.limits import LEAST_MBIT, MOST_MBIT, check_profile, is_number

MOST_FACTOR = 1e6


@dataclass(frozen=True)
class Scaled:
    of: Profile
    factor: float = 1.0  # of rates, > 0

    def __post_init__(self) -> None:
        check_profile(of=self.of)
        if not (is_number(self.factor) and 0 < self.factor <= MOST_FACTOR):
            raise ValueError(
                f"factor must be a number in (0, {MOST_FACTOR:g}], got {self.factor!r}"
            )
        bounds = self.extremes()
        if not LEAST_MBIT <= bounds.lowest_mbit <= bounds.highest_mbit <= MOST_MBIT:
            raise ValueError(
                f"factor must keep rates in [{LEAST_MBIT}, {MOST_MBIT}] Mbit/s, got {self.factor}, "
                f"which makes them {bounds.lowest_mbit:g} to {bounds.highest_mbit:g}"
            )

    def link(self, time_s: float, node: int, way: Way) -> Link:
        link = self.of.link(time_s, node, way)
        return link._replace(rate_mbit=link.rate_mbit * self.factor)

    def flows(self, time_s: float) -> int:
        return self.of.flows(time_s)

    def extremes(self) -> Extremes:
        of = self.of.extremes()
        return of._replace(
            lowest_mbit=of.lowest_mbit * self.factor, highest_mbit=of.highest_mbit * self.factor
        )
