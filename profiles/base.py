"""Network conditions as pure functions of time."""

from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol

Way = Literal["up", "down"]  # from a node into the network, or from the network down to it
WAYS: tuple[Way, Way] = ("up", "down")


class Link(NamedTuple):
    """Conditions of one direction of a link. A packet between two nodes crosses two links."""

    rate_mbit: float
    delay_ms: float = 0.0  # one way, of this direction alone
    jitter_ms: float = 0.0  # delays are uniform in delay_ms +- jitter_ms
    loss: float = 0.0  # share of packets, in [0, 1)
    reorder: float = 0.0  # share of packets that overtake the delay, in [0, 1)


class Extremes(NamedTuple):
    """Bounds over all links of a profile: lowest and highest rate, and the maximum of the rest."""

    lowest_mbit: float
    highest_mbit: float
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    reorder: float = 0.0
    flows: int = 0


def widest(parts: Iterable[Extremes]) -> Extremes:
    """Return bounds that hold for each of several profiles."""
    lowest, highest, *most = zip(*parts, strict=True)
    return Extremes(min(lowest), max(highest), *map(max, most))


class Profile(Protocol):
    """Network conditions over time, pure and seeded, so that they can be plotted and replayed."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        """Return one direction's conditions of `node`'s link at `time_s`; below 0 counts as 0."""
        ...

    def flows(self, time_s: float) -> int:
        """Return the number of competing iperf3 flows at `time_s`."""
        ...

    def extremes(self) -> Extremes:
        """Return bounds over all times, nodes and ways, which size queues and timeouts."""
        ...
