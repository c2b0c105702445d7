"""Random bursts of packet loss on top of another profile (Gilbert, 1960)."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from profiles.base import Extremes, Link, Profile, Way
from profiles.limits import check_choice, check_lasting, check_profile, check_share, check_whole
from profiles.segments import value_at


@dataclass(frozen=True)
class LossBursts:
    """Profile of alternating gaps and bursts of exponential lengths, equal for both ways."""

    of: Profile
    mean_gap_s: float
    mean_burst_s: float
    loss: float  # share of packets in a burst, in [0, 1); independent of the loss there is already
    seed: int = 0  # with the node, all that the bursts depend on; >= 0
    shared: bool = False  # one series of bursts for all nodes

    def __post_init__(self) -> None:
        check_profile(of=self.of)
        check_lasting(mean_gap_s=self.mean_gap_s, mean_burst_s=self.mean_burst_s)
        check_share(loss=self.loss)
        check_whole(0, seed=self.seed)
        check_choice((True, False), shared=self.shared)
        if self.extremes().loss >= 1:
            raise ValueError(f"loss must leave some packets with {self.of}, got {self.loss}")

    def link(self, time_s: float, node: int, way: Way) -> Link:
        link = self.of.link(time_s, node, way)
        series = "bursts/all" if self.shared else f"bursts/{node}"
        burst = value_at(self, series, max(0.0, time_s))
        return link._replace(loss=self._together(link.loss)) if burst else link

    def draws(self, random: Random) -> Iterator[tuple[float, float]]:
        while True:
            yield random.expovariate(1 / self.mean_gap_s), 0
            yield random.expovariate(1 / self.mean_burst_s), 1

    def flows(self, time_s: float) -> int:
        return self.of.flows(time_s)

    def extremes(self) -> Extremes:
        of = self.of.extremes()
        return of._replace(loss=self._together(of.loss))

    def _together(self, loss: float) -> float:
        return 1 - (1 - loss) * (1 - self.loss)
