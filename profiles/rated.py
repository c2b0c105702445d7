"""Base classes of profiles that consist of a rate over time, on a path that does not change."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from profiles.base import Extremes, Link, Way
from profiles.limits import check_choice, check_path, check_whole
from profiles.play import Rates
from profiles.segments import drawn_parts, value_at


@dataclass(frozen=True, kw_only=True)
class Rated(ABC):
    """Base class of profiles that define `mbit` and `range_mbit`. Both ways are alike."""

    delay_ms: float = 0.0  # one way, of each direction of each link, in [0, 60000]
    jitter_ms: float = 0.0  # at most delay_ms
    loss: float = 0.0  # share of packets, in [0, 1)
    reorder: float = 0.0  # share of packets that overtake the delay, in [0, 1); needs a delay

    def __post_init__(self) -> None:
        check_path(self.delay_ms, self.jitter_ms, self.loss, self.reorder)

    @abstractmethod
    def mbit(self, time_s: float, node: int) -> float:
        """Return the rate of `node`'s link in Mbit/s, `time_s` >= 0 after step 0."""

    @abstractmethod
    def range_mbit(self) -> tuple[float, float]:
        """Return the lowest and highest rate of any node at any time."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        rate = self.mbit(max(0.0, time_s), node)
        return Link(rate, self.delay_ms, self.jitter_ms, self.loss, self.reorder)

    def flows(self, time_s: float) -> int:
        return 0

    def extremes(self) -> Extremes:
        path = (self.delay_ms, self.jitter_ms, self.loss, self.reorder)
        return Extremes(*self.range_mbit(), *path)


@dataclass(frozen=True, kw_only=True)
class DrawnRate(Rated):
    """Base class of rates that change at random, which define `draws` and `range_mbit`."""

    seed: int = 0  # with the node, all that the rates depend on; >= 0
    shared: bool = False  # one series for all nodes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(0, seed=self.seed)
        check_choice((True, False), shared=self.shared)

    @abstractmethod
    def draws(self, random: Random) -> Iterator[tuple[float, float]]:
        """Yield pairs of a length in seconds and a rate, without end."""

    def mbit(self, time_s: float, node: int) -> float:
        return value_at(self, self.series(node), time_s)

    def play(self, node: int, way: Way) -> Rates:
        """Yield the rates of `link` in order of time, without keeping past ones."""
        path = Link(1.0, self.delay_ms, self.jitter_ms, self.loss, self.reorder)
        return Rates(path, drawn_parts(self, self.series(node)))

    def series(self, node: int, way: Way = "up") -> str:
        return "all" if self.shared else str(node)
