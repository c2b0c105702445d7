"""A network whose rates change at random: piecewise constant, uniform rates and lengths.

DC2 (Abdelmoniem & Canini, 2021) limits each worker at random, by a profile that all methods share;
rates and lengths are not given there.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import NamedTuple

from profiles.limits import check_above_zero
from profiles.rated import Rated

FIRST_HORIZON_S = 1024.0  # a trace is made this long, and doubled when time passes its end


class Trace(NamedTuple):
    """One node's rates: `rates_mbit[i]` until `ends_s[i]`."""

    ends_s: list[float]
    rates_mbit: list[float]


@dataclass(frozen=True)
class Fluctuating(Rated):
    low_mbit: float
    high_mbit: float  # >= low_mbit
    min_s: float  # shortest segment
    max_s: float  # longest segment, >= min_s
    seed: int = 0  # with the node, all that the rates depend on
    shared: bool = False  # one trace for all nodes

    def __post_init__(self) -> None:
        check_above_zero(low_mbit=self.low_mbit, high_mbit=self.high_mbit)
        check_above_zero(min_s=self.min_s, max_s=self.max_s)
        super().__post_init__()
        if self.low_mbit > self.high_mbit:
            raise ValueError(
                f"low_mbit must be in (0, {self.high_mbit}] (high_mbit), got {self.low_mbit}"
            )
        if self.min_s > self.max_s:
            raise ValueError(f"min_s must be in (0, {self.max_s}] (max_s), got {self.min_s}")

    def mbit(self, time_s: float, node: int) -> float:
        horizon_s = FIRST_HORIZON_S
        while horizon_s <= time_s:
            horizon_s *= 2
        ends_s, rates_mbit = _trace(self, "all" if self.shared else str(node), horizon_s)
        return rates_mbit[bisect_right(ends_s, time_s)]

    def range_mbit(self) -> tuple[float, float]:
        return self.low_mbit, self.high_mbit


@lru_cache(maxsize=1024)
def _trace(profile: Fluctuating, node: str, horizon_s: float) -> Trace:
    """The node's trace beyond `horizon_s`; a longer one begins with the shorter."""
    random = Random(f"{profile.seed}/{node}")  # text is hashed by SHA-512: equal on every Python
    end_s, trace = 0.0, Trace([], [])
    while end_s <= horizon_s:
        end_s += random.uniform(profile.min_s, profile.max_s)
        trace.ends_s.append(end_s)
        trace.rates_mbit.append(random.uniform(profile.low_mbit, profile.high_mbit))
    return trace
