"""Competing iperf3 flows that come and go on top of another profile, as in NetSenseML (2025)."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from random import Random

from profiles.base import Extremes, Link, Profile, Way
from profiles.limits import (
    MOST_S,
    check_between,
    check_lasting,
    check_profile,
    check_share,
    check_whole,
)
from profiles.play import Rates, play, series
from profiles.segments import value_at

MOST_FLOWS = 128  # of iperf3 --parallel


@dataclass(frozen=True)
class Contended:
    """Profile that adds `parallel` flows for about `on_s`, then none for about `off_s`, repeatedly.

    With `up_to`, each burst has one flow more than the previous one, from `parallel` to `up_to`,
    and then starts over.
    """

    of: Profile
    parallel: int  # flows at a time, in [0, 128]
    up_to: int | None = None  # in [parallel, 128]; None: as many every time
    on_s: float = 60.0
    off_s: float = 10.0
    start_s: float = 0.0  # when the first come
    cycles: int | None = None  # how often they come, >= 1; None: without end
    spread: float = 0.0  # each length is uniform within this share of its mean, in [0, 1)
    seed: int = 0  # all that the lengths depend on; >= 0

    def __post_init__(self) -> None:
        check_profile(of=self.of)
        check_whole(0, MOST_FLOWS, parallel=self.parallel)
        if self.up_to is not None:
            check_whole(self.parallel, MOST_FLOWS, up_to=self.up_to)
        check_lasting(on_s=self.on_s, off_s=self.off_s)
        check_between(0, MOST_S, start_s=self.start_s)
        if self.cycles is not None:
            check_whole(1, cycles=self.cycles)
        check_share(spread=self.spread)
        check_whole(0, seed=self.seed)

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return self.of.link(time_s, node, way)

    def play(self, node: int, way: Way) -> Rates | None:
        return play(self.of, node, way)

    def series(self, node: int, way: Way) -> Hashable:
        return series(self.of, node, way)

    def flows(self, time_s: float) -> int:
        return self.of.flows(time_s) + int(value_at(self, "flows", max(0.0, time_s)))

    def draws(self, random: Random) -> Iterator[tuple[float, float]]:
        yield self.start_s, 0
        done = 0
        while self.cycles is None or done < self.cycles:
            coming = self.parallel + done % (self._most - self.parallel + 1)
            for mean_s, flows in ((self.on_s, coming), (self.off_s, 0)):
                yield mean_s * random.uniform(1 - self.spread, 1 + self.spread), flows
            done += 1
        yield float("inf"), 0

    def extremes(self) -> Extremes:
        of = self.of.extremes()
        return of._replace(flows=of.flows + self._most)

    @property
    def _most(self) -> int:
        return self.parallel if self.up_to is None else self.up_to
