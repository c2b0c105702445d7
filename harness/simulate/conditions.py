"""The links of a network as a simulated run sees them: looked at again and again, held between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from typing import NamedTuple

import numpy as np

from harness.simulate.routes import Routes
from profiles.base import Link

BYTES_PER_MBIT = 125_000
UNSHAPED = Link(np.inf)


class Look(NamedTuple):
    """Conditions until the next look; arrays are [directions + 1], the last is not shaped."""

    version: int  # of the network; the same while nothing changes
    links: list[Link]
    flows: int  # competing, on each direction that is shared
    bytes_per_s: np.ndarray
    delay_s: np.ndarray
    loss: np.ndarray


@dataclass
class Conditions:
    """What the profile said at the last multiple of `update_s`, as the player of a real network.

    Meant for times that do not fall: going back begins anew.
    """

    routes: Routes
    update_s: float
    _number: int = field(default=-1, init=False)  # of the last look

    def __post_init__(self) -> None:
        self._rewind()

    def look(self, time_s: float) -> Look:
        """What holds at `time_s`."""
        number = self._number_at(time_s)
        if number < self._number:
            self._rewind()
        if number != self._number:
            self._number = number
            self._advance(number * self.update_s)
        return self._look

    def finish(
        self, start_s: float, amounts: np.ndarray, rates: Callable[[Look], np.ndarray]
    ) -> float:
        """When all of `amounts`, begun at `start_s`, are carried, each at its rate per second."""
        time_s, left = start_s, np.asarray(amounts, dtype=float)
        while True:
            per_s = rates(self.look(time_s))
            until_s = (self._number + 1) * self.update_s
            needed_s = float(np.max(left / per_s))
            if needed_s <= until_s - time_s:
                return time_s + needed_s
            left = np.maximum(left - per_s * (until_s - time_s), 0.0)
            time_s = until_s

    def _number_at(self, time_s: float) -> int:
        number = int(time_s / self.update_s)
        return number + ((number + 1) * self.update_s <= time_s)  # despite rounding

    def _rewind(self) -> None:
        self._played = self.routes.played()
        self._due = [(-np.inf, direction) for direction in range(len(self._played))]
        heapify(self._due)
        size = len(self._played) + 1
        self._look = Look(
            0, [UNSHAPED] * size, 0, np.full(size, np.inf), np.zeros(size), np.zeros(size)
        )
        self._number = -1

    def _advance(self, time_s: float) -> None:
        """Ask for what may have changed; a new look where something has."""
        last = self._look
        changed: dict[int, Link] = {}
        while self._due and self._due[0][0] <= time_s:
            direction = self._due[0][1]
            held = self._played[direction].at(time_s)
            heapreplace(self._due, (max(held.until_s, np.nextafter(time_s, np.inf)), direction))
            if held.link != last.links[direction]:
                changed[direction] = held.link
        flows = self.routes.flows(time_s)
        if changed or flows != last.flows:
            self._look = _with(last, changed, flows)


def _with(last: Look, changed: dict[int, Link], flows: int) -> Look:
    links, which = last.links.copy(), list(changed)
    for direction, link in changed.items():
        links[direction] = link
    rates, delays, losses = last.bytes_per_s.copy(), last.delay_s.copy(), last.loss.copy()
    rates[which] = [link.rate_mbit * BYTES_PER_MBIT for link in changed.values()]
    delays[which] = [link.delay_ms / 1000 for link in changed.values()]
    losses[which] = [link.loss for link in changed.values()]
    return Look(last.version + 1, links, flows, rates, delays, losses)
