"""The links of all nodes as a simulated run sees them: looked at again and again, held between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from profiles.base import Link, Profile

MOST_KEPT = 1000  # looks


class Look(NamedTuple):
    """Every node's links, and competing flows on each, until the next look."""

    ups: list[Link]
    downs: list[Link]
    flows: int


@dataclass
class Conditions:
    """What `profile` said at the last multiple of `update_s`, as the player of a real network."""

    profile: Profile
    nodes: int
    update_s: float
    _looks: dict[int, Look] = field(default_factory=dict, init=False)

    def look(self, time_s: float) -> Look:
        """What holds at `time_s`."""
        number = self._number(time_s)
        if number not in self._looks:
            if len(self._looks) >= MOST_KEPT:
                self._looks.clear()
            self._looks[number] = self._seen(number * self.update_s)
        return self._looks[number]

    def finish(self, start_s: float, amount: float, rate: Callable[[Look], float]) -> float:
        """When `amount` has been carried from `start_s` on, at `rate` per second of each look."""
        time_s = start_s
        while True:
            per_s = rate(self.look(time_s))
            until_s = (self._number(time_s) + 1) * self.update_s
            if amount <= per_s * (until_s - time_s):
                return time_s + amount / per_s
            amount -= per_s * (until_s - time_s)
            time_s = until_s

    def _number(self, time_s: float) -> int:
        number = int(time_s / self.update_s)
        return number + ((number + 1) * self.update_s <= time_s)  # despite rounding

    def _seen(self, time_s: float) -> Look:
        link, nodes = self.profile.link, range(self.nodes)
        ups = [link(time_s, node, "up") for node in nodes]
        downs = [link(time_s, node, "down") for node in nodes]
        return Look(ups, downs, self.profile.flows(time_s))
