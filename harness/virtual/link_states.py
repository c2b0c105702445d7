"""The links of a network over time, as a simulated run sees them at each update.

Consecutive states are made together, so that what is computed of many directions is computed for
many updates at once.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from harness.virtual.routes import Routes
from profiles.base import Link

BYTES_PER_MBIT = 125_000
UNSHAPED = Link(np.inf)
MOST_UPDATES = 128  # that are made together
MOST_CELLS = 2**16  # numbers in an array of them: 512 KB, which a processor's cache holds


class Changes(NamedTuple):
    """Changes of links: which link, at which update, and its new conditions.

    They are ordered by link, and by update for each link. The rate of a path is ignored.
    """

    which: list[int]
    updates: list[int]
    rates_mbit: list[float]
    paths: list[Link]


@dataclass(eq=False)
class LinkSeries:
    """Consecutive conditions as arrays [states, directions + 1]; the last is unshaped."""

    bytes_per_s: np.ndarray
    delay_s: np.ndarray
    loss: np.ndarray
    flows: list[int]  # competing, on each direction that is shared
    _before: list[tuple[float, Link]]  # rate and path of everything that rules directions
    _changes: Changes  # by rows in place of updates
    _ruled_by: np.ndarray  # [directions + 1]

    def links(self, state: int) -> list[Link]:
        """Return the link of each direction."""
        now = list(self._before)
        for which, since, rate_mbit, path in zip(*self._changes, strict=True):
            if since <= state:
                now[which] = rate_mbit, path
        links = [path._replace(rate_mbit=rate_mbit) for rate_mbit, path in now]
        return [links[which] for which in self._ruled_by.tolist()]


class LinkState(NamedTuple):
    """Rates, delays and losses until the next update. Arrays are [directions + 1]."""

    series: LinkSeries
    row: int

    @property
    def links(self) -> list[Link]:
        return self.series.links(self.row)

    @property
    def bytes_per_s(self) -> np.ndarray:
        return self.series.bytes_per_s[self.row]

    @property
    def delay_s(self) -> np.ndarray:
        return self.series.delay_s[self.row]

    @property
    def loss(self) -> np.ndarray:
        return self.series.loss[self.row]

    @property
    def flows(self) -> int:
        return self.series.flows[self.row]


@dataclass
class LinkStates:
    """Link states at the last multiple of `update_s`, as a player holds them, for rising times."""

    routes: Routes
    update_s: float
    _first: int = field(default=0, init=False)  # number of the first update of those made
    _made: list[LinkState] = field(default_factory=list, init=False)  # of it and those after it

    def __post_init__(self) -> None:
        self._rewind()

    def at(self, time_s: float) -> LinkState:
        """Return the link state that holds at `time_s`."""
        return self._numbered(self._number_at(time_s))

    def finish(
        self, start_s: float, amounts: np.ndarray, rates: Callable[[LinkState], np.ndarray]
    ) -> float:
        """Return when all of `amounts`, begun at `start_s`, are carried, each at its own rate."""
        time_s, left = start_s, np.asarray(amounts, dtype=float)
        while True:
            number = self._number_at(time_s)
            per_s = rates(self._numbered(number))
            until_s = (number + 1) * self.update_s
            needed_s = float((left / per_s).max())
            if needed_s <= until_s - time_s:
                return time_s + needed_s
            left = np.maximum(left - per_s * (until_s - time_s), 0.0)
            time_s = until_s

    def _number_at(self, time_s: float) -> int:
        number = int(time_s / self.update_s)
        return number + ((number + 1) * self.update_s <= time_s)  # despite rounding

    def _numbered(self, number: int) -> LinkState:
        if number < self._first:
            self._rewind()
        known = len(self._made)
        if number >= self._first + known:
            follows = number == self._first + known  # then twice as many as before
            self._made = self._make(number, min(self._most, 2 * known) if follows and known else 1)
            self._first = number
        return self._made[number - self._first]

    def _rewind(self) -> None:
        played = self.routes.played()
        self._played = list({id(each): each for each in played}.values())
        places = {id(each): place for place, each in enumerate(self._played)}
        self._ruled_by = np.array([*(places[id(each)] for each in played), len(places)])
        unshaped = (UNSHAPED.rate_mbit, UNSHAPED)
        self._held = [unshaped] * (len(places) + 1)  # rates and paths of what has been looked at
        size = len(self._held)
        self._rates_mbit, self._delays_ms, self._loss = np.full(size, np.inf), *np.zeros((2, size))
        self._until_s = np.full(len(places), -np.inf)  # to which they hold
        self._most = max(1, min(MOST_UPDATES, MOST_CELLS // len(self._ruled_by)))
        self._first, self._made = 0, []

    def _make(self, first: int, count: int) -> list[LinkState]:
        """Build `count` link states. Equal neighbours share one object."""
        times = [number * self.update_s for number in range(first, first + count)]
        flows = [self.routes.flows(time_s) for time_s in times]
        before = list(self._held)
        changes = self._changes(times)
        last = self._made[-1] if self._made else None
        if last and not changes.updates and all(each == last.flows for each in flows):
            return [last] * count
        others = {update for update in range(1, count) if flows[update] != flows[update - 1]}
        since = sorted({0, *changes.updates, *others})
        row_of = np.repeat(np.arange(len(since)), np.diff([*since, count])).tolist()
        changes = changes._replace(updates=[row_of[update] for update in changes.updates])
        fill = partial(self._filled, changes, len(since))
        series = LinkSeries(
            bytes_per_s=fill(self._rates_mbit, changes.rates_mbit) * BYTES_PER_MBIT,
            delay_s=fill(self._delays_ms, [path.delay_ms for path in changes.paths]) / 1000,
            loss=fill(self._loss, [path.loss for path in changes.paths]),
            flows=[flows[update] for update in since],
            _before=before,
            _changes=changes,
            _ruled_by=self._ruled_by,
        )
        return [LinkState(series, row) for row in row_of]

    def _filled(
        self, changes: Changes, states: int, before_: np.ndarray, after: list[float]
    ) -> np.ndarray:
        """Return values by state, [states, directions + 1]; set `before_` to the last state's."""
        values = np.array(after, dtype=float)
        if (values == before_[changes.which]).all():
            return np.broadcast_to(before_[self._ruled_by], (states, len(self._ruled_by)))
        every = np.arange(len(before_))
        firsts = np.searchsorted(changes.which, every)
        since = np.insert(
            np.array(changes.which) * states + changes.updates, firsts, every * states
        )
        held = np.diff(since, append=states * len(every)).astype(int)
        filled = np.repeat(np.insert(values, firsts, before_), held).reshape(-1, states)
        before_[:] = filled[:, -1]
        return filled[self._ruled_by].T

    def _changes(self, times: list[float]) -> Changes:
        """Ask the profile for changes up to the last of `times`."""
        held, count = self._held, len(times)
        found = Changes([], [], [], [])
        for which in np.flatnonzero(self._until_s <= times[-1]).tolist():
            played, until_s = self._played[which], self._until_s[which]
            rate_mbit, path = held[which]
            update = bisect_left(times, until_s)
            while update < count:
                until_s, now_mbit = played.at(times[update])
                now = played.path
                if now_mbit != rate_mbit or (now is not path and now[1:] != path[1:]):
                    rate_mbit, path = now_mbit, now
                    found.which.append(which)
                    found.updates.append(update)
                    found.rates_mbit.append(rate_mbit)
                    found.paths.append(path)
                update = bisect_left(times, until_s, update + 1)
            held[which], self._until_s[which] = (rate_mbit, path), until_s
        return found
