"""Network conditions as pure functions of time."""

from typing import NamedTuple, Protocol


class Link(NamedTuple):
    """Conditions of one node's link, the same up and down."""

    rate_mbit: float
    delay_ms: float = 0.0  # one way
    jitter_ms: float = 0.0
    loss: float = 0.0  # share of packets, in [0, 1)


class Profile(Protocol):
    """What the network does over time; pure and seeded: can be plotted, replayed and tested."""

    def link(self, time_s: float, node: int) -> Link:
        """Conditions of `node`'s link, `time_s` emulated seconds after step 0 (< 0 counts as 0)."""
        ...

    def flows(self, time_s: float) -> int:
        """Competing iperf3 flows at `time_s`."""
        ...

    def range_mbit(self) -> tuple[float, float]:
        """Lowest and highest rate any node is ever given; sizes queues, bursts and timeouts."""
        ...
