"""The links of a network as a simulated run sees them: looked at again and again, held between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapreplace
from math import inf, nextafter

import numpy as np

from harness.virtual.routes import Routes
from profiles.base import Link

BYTES_PER_MBIT = 125_000
UNSHAPED = Link(np.inf)


@dataclass
class LinkState:
    """Rates, delays and losses until the next update; arrays are [directions + 1].

    The last direction is not shaped.
    """

    links: list[Link]
    bytes_per_s: np.ndarray
    delay_s: np.ndarray
    loss: np.ndarray
    flows: int = 0  # competing, on each direction that is shared
    version: int = 0  # of the network; the same while nothing changes

    @classmethod
    def unshaped(cls, directions: int) -> "LinkState":
        size = directions + 1
        return cls([UNSHAPED] * size, np.full(size, np.inf), np.zeros(size), np.zeros(size))


@dataclass
class LinkStates:
    """Link state of a profile at the last multiple of `update_s`, as a player would hold it.

    Meant for times that do not fall: going back begins anew.
    """

    routes: Routes
    update_s: float
    _number: int = field(default=-1, init=False)  # of the last update

    def __post_init__(self) -> None:
        self._state = LinkState.unshaped(0)
        self._rewind()

    def at(self, time_s: float) -> LinkState:
        """Link state that holds at `time_s`."""
        number = self._number_at(time_s)
        if number < self._number:
            self._rewind()
        if number != self._number:
            self._number = number
            self._advance(number * self.update_s)
        return self._state

    def finish(
        self, start_s: float, amounts: np.ndarray, rates: Callable[[LinkState], np.ndarray]
    ) -> float:
        """Time at which all of `amounts`, begun at `start_s`, are carried, each at its rate."""
        time_s, left = start_s, np.asarray(amounts, dtype=float)
        while True:
            per_s = rates(self.at(time_s))
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
        played = self.routes.played()
        alike: dict[int, list[int]] = {}  # directions by what rules them
        for direction, each in enumerate(played):
            alike.setdefault(id(each), []).append(direction)
        self._groups = [(played[directions[0]], directions) for directions in alike.values()]
        self._due = [(-np.inf, group) for group in range(len(self._groups))]
        before, self._state = self._state, LinkState.unshaped(len(played))
        self._state.version = before.version + 1
        self._number = -1

    def _advance(self, time_s: float) -> None:
        """Ask for what may have changed."""
        state, due, links = self._state, self._due, self._state.links
        which: list[int] = []  # directions with another rate, which nearly all changes are
        rates: list[float] = []
        while due and due[0][0] <= time_s:
            group = due[0][1]
            played, directions = self._groups[group]
            until_s, link = played.at(time_s)
            heapreplace(due, (until_s if until_s > time_s else nextafter(time_s, inf), group))
            if link == (before := links[directions[0]]):
                continue
            if link[1:] != before[1:]:
                state.delay_s[directions], state.loss[directions] = link.delay_ms / 1000, link.loss
            for direction in directions:
                links[direction] = link
                which.append(direction)
                rates.append(link.rate_mbit)
        state.bytes_per_s[which] = np.array(rates) * BYTES_PER_MBIT
        flows = self.routes.flows(time_s)
        if which or flows != state.flows:
            state.flows, state.version = flows, state.version + 1
