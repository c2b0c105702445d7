"""Links with different up- and downlinks, as at home or over a satellite."""

from dataclasses import dataclass

from profiles.base import Extremes, Link, Profile, Way, widest
from profiles.limits import check_profile


@dataclass(frozen=True)
class Asymmetric:
    """Profile with one profile for uplinks and one for downlinks, and the more flows of both."""

    up: Profile  # from nodes into the network
    down: Profile  # from the network to nodes

    def __post_init__(self) -> None:
        check_profile(up=self.up, down=self.down)

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return (self.up if way == "up" else self.down).link(time_s, node, way)

    def flows(self, time_s: float) -> int:
        return max(self.up.flows(time_s), self.down.flows(time_s))

    def extremes(self) -> Extremes:
        return widest((self.up.extremes(), self.down.extremes()))
