"""What profiles share that are a rate over time, on a path that does not change."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from profiles.base import Extremes, Link, Way
from profiles.limits import check_path


@dataclass(frozen=True, kw_only=True)
class Rated(ABC):
    """A profile that only has to give `mbit` and `range_mbit`; both ways are alike."""

    delay_ms: float = 0.0  # one way, of each direction of each link
    jitter_ms: float = 0.0  # at most delay_ms
    loss: float = 0.0  # share of packets, in [0, 1)
    reorder: float = 0.0  # share of packets that overtake the delay, in [0, 1); needs a delay

    def __post_init__(self) -> None:
        check_path(self.delay_ms, self.jitter_ms, self.loss, self.reorder)

    @abstractmethod
    def mbit(self, time_s: float, node: int) -> float:
        """Mbit/s of `node`'s link, `time_s` >= 0 emulated seconds after step 0."""

    @abstractmethod
    def range_mbit(self) -> tuple[float, float]:
        """Lowest and highest rate any node is ever given."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        rate = self.mbit(max(0.0, time_s), node)
        return Link(rate, self.delay_ms, self.jitter_ms, self.loss, self.reorder)

    def flows(self, time_s: float) -> int:
        return 0

    def extremes(self) -> Extremes:
        path = (self.delay_ms, self.jitter_ms, self.loss, self.reorder)
        return Extremes(*self.range_mbit(), *path)
