"""A link with two states, good and bad, of exponential lengths (Gilbert, 1960)."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from profiles.limits import check_lasting, check_mbit, check_order
from profiles.rated import DrawnRate


@dataclass(frozen=True)
class Markov(DrawnRate):
    """Stationary profile of two states.

    At any time, also at 0, a link is good with probability mean_good_s / (mean_good_s +
    mean_bad_s).
    """

    good_mbit: float
    bad_mbit: float  # <= good_mbit
    mean_good_s: float
    mean_bad_s: float

    def __post_init__(self) -> None:
        check_mbit(good_mbit=self.good_mbit, bad_mbit=self.bad_mbit)
        check_order(bad_mbit=self.bad_mbit, good_mbit=self.good_mbit)
        check_lasting(mean_good_s=self.mean_good_s, mean_bad_s=self.mean_bad_s)
        super().__post_init__()

    def draws(self, random: Random) -> Iterator[tuple[float, float]]:
        good = random.random() * (self.mean_good_s + self.mean_bad_s) < self.mean_good_s
        while True:
            mean_s = self.mean_good_s if good else self.mean_bad_s
            yield random.expovariate(1 / mean_s), self.good_mbit if good else self.bad_mbit
            good = not good

    def range_mbit(self) -> tuple[float, float]:
        return self.bad_mbit, self.good_mbit
