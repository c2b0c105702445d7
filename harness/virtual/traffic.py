"""Simultaneous messages between ranks, which share links max-min fairly.

Every message is a flow, as fast as the links on its path allow. Rates grow together until a link is
full. The flows of that link keep their rate, and the others go on (progressive filling; Bertsekas
and Gallager, Data Networks, 6.5.2). Competing flows of the profile take part on their links. The
cost of a message beside its bytes, and the effect of loss, are as in `harness.virtual.costs`.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from harness.virtual.bandwidth_shares import BandwidthShares
from harness.virtual.costs import Costs
from harness.virtual.link_states import LinkState, LinkStates
from harness.virtual.routes import VOID


class Path(NamedTuple):
    """Link directions of a message: there and back as [1, hops], and there as numbers."""

    there: np.ndarray
    back: np.ndarray
    directions: tuple[int, ...]


@dataclass(eq=False)
class Flow:
    """A message. `end_s` is None until all of it has arrived."""

    path: Path
    left: float  # bytes
    begins_s: float  # its bytes; later than the message by what they take beside
    least_s: float = 0.0  # before that it is not there
    end_s: float | None = None
    rate: float = field(default=0.0, init=False)  # bytes per second


@dataclass
class Traffic:
    """A `Happening`: messages that share links. Times may decrease only while none is under way."""

    costs: Costs
    _flows: list[Flow] = field(default_factory=list, init=False)
    _paths: dict[tuple[int, int], Path] = field(default_factory=dict, init=False)
    _now_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        whole = self.costs.link_states
        self._link_states = LinkStates(whole.routes, whole.update_s)
        costs = self.costs
        self._links = BandwidthShares(
            whole.routes, costs.efficiency, costs.queue_bytes, 2 * costs.alpha_s,
            costs.tcp, costs.efficiencies,
        )  # fmt: skip
        self._shared = whole.routes.shared()

    def begin(self, start_s: float, sender: int, receiver: int, nbytes: int) -> Flow:
        """Begin a message of `nbytes` from one rank to another, and return its flow."""
        costs, path = self.costs, self._path(sender, receiver)
        stretch, state = costs.noise.factor(), self._link_states.at(start_s)
        latency_s, wakes_s = costs._handled(0.0, 1, stretch, posted=True)
        delay_s = sum(float(state.delay_s[each]) for each in path.directions)
        waits_s = stretch * float(self._links.waits_s(state, path.there).max())
        begins_s = start_s + latency_s + delay_s + self._slow_start_s(state, path, nbytes)
        least_s = max(begins_s + waits_s, start_s + wakes_s + delay_s)
        flow = Flow(path, stretch * nbytes, begins_s, least_s)
        if not path.directions or not nbytes:
            flow.end_s = least_s if path.directions else start_s + max(latency_s, wakes_s)
            return flow
        np.add.at(costs._carried, path.there, nbytes / costs.efficiency)
        self._advance_all(start_s)
        self._flows.append(flow)
        self._share()
        return flow

    def _slow_start_s(self, state: LinkState, path: Path, nbytes: int) -> float:
        """Return the slow-start time of a message, at the rate it would have alone."""
        if not path.directions or self.costs.tcp.initial_window_bytes == inf:
            return 0.0
        most = self._links.bounds(state, path.there, path.back)[0]
        alone = min(float(self._links.payload(state.bytes_per_s)[path.there].min()), float(most))
        rtt_s = float(self._links.round_trips_s(state, path.there, path.back)[0])
        return self.costs.tcp.slow_start_s(nbytes, alone, rtt_s)

    def next_s(self) -> float:
        """Return the time of the next change: a flow ends or begins, or links change."""
        if not self._flows:
            return inf
        now_s, ends_s = self._now_s, []
        for flow in self._flows:
            if flow.begins_s > now_s:
                ends_s.append(flow.begins_s)
            elif flow.rate:
                ends_s.append(now_s + flow.left / flow.rate)
        every_s = self._link_states.update_s
        number = int(self._now_s / every_s) + 1
        return min(*ends_s, (number + (number * every_s <= self._now_s)) * every_s, inf)

    def advance(self, time_s: float) -> None:
        for flow in self._flows:
            if flow.begins_s <= self._now_s:
                flow.left -= flow.rate * (time_s - self._now_s)
        self._now_s = time_s
        here = [flow for flow in self._flows if flow.begins_s <= time_s]
        for flow in here:
            if flow.left <= flow.rate * 1e-12 + 1e-6:  # of a byte: rounding
                flow.end_s = max(time_s, flow.least_s)
        self._flows = [flow for flow in self._flows if flow.end_s is None]
        self._share()

    def _advance_all(self, time_s: float) -> None:
        if not self._flows:
            self._now_s = time_s
        while self.next_s() <= time_s:
            self.advance(self.next_s())
        if self._flows and time_s > self._now_s:
            self.advance(time_s)

    def _share(self) -> None:
        """Set the rate of every flow under way to its max-min fair share, in bytes/s."""
        state = self._link_states.at(self._now_s)
        growing = [flow for flow in self._flows if flow.begins_s <= self._now_s]
        on = Counter(each for flow in growing for each in flow.path.directions)
        payload, own = self._links.payload(state.bytes_per_s), self.costs.tcp.flows
        room = {each: float(payload[each]) for each in on}
        most = self._most(state, growing)
        while growing:
            level, where = min(
                (room[each] / (count + state.flows * float(self._shared[each]) / own), each)
                for each, count in on.items()
                if count
            )
            bound = [flow for flow in growing if most[id(flow)] < level]
            full = bound or [flow for flow in growing if where in flow.path.directions]
            for flow in full:
                flow.rate = min(level, most[id(flow)])
                for each in flow.path.directions:
                    on[each] -= 1
                    room[each] -= flow.rate
            growing = [flow for flow in growing if flow not in full]

    def _most(self, state: LinkState, flows: list[Flow]) -> dict[int, float]:
        """Return the bytes/s that loss and windows allow, by flow."""
        if not (state.loss.any() or self.costs.tcp.is_bounded):
            return {id(flow): inf for flow in flows}
        return {
            id(flow): float(self._links.bounds(state, flow.path.there, flow.path.back)[0])
            for flow in flows
        }

    def _path(self, sender: int, receiver: int) -> Path:
        own = self.costs.workers_per_node
        nodes = sender // own, receiver // own
        if nodes not in self._paths:
            ends = np.array([nodes[0]]), np.array([nodes[1]])
            routes = self._link_states.routes
            there, back = routes.paths(*ends), routes.paths(*reversed(ends))
            if nodes[0] == nodes[1]:
                there = back = np.full_like(there, VOID)
            crossed = tuple(int(direction) for direction in there[0] if direction != VOID)
            self._paths[nodes] = Path(there, back, crossed)
        return self._paths[nodes]
