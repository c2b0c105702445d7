"""Bandwidth and waiting times of connections on shared links, for `harness.virtual.costs`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import inf, log2

import numpy as np
from scipy.special import ive

from harness.virtual.link_states import LinkSeries, LinkState
from harness.virtual.ring_finish import SEGMENT_BYTES
from harness.virtual.routes import Paths, Routes
from harness.virtual.tcp_flows import TcpFlows, payload_shares

# Share of a queue that CUBIC's window fills: the mean of full, and of the rest after a loss,
# 0.7 (RFC 9438, 4.6). Half of it is in one queue, and half in the next one, as acknowledgements.
WINDOW = (1 + 0.7) / 2
# Increase with the number of flows. Twice the mean share of a queue of 4 nodes was 0.87, 0.94,
# 1.02 and 1.13 for 1, 2, 4 and 8 flows a link (links.csv).
WINDOW_PER_DOUBLING = 0.09
LEAST_RTO_S = 0.2  # Linux's, on top of the round trip


@dataclass
class BandwidthShares:
    """Shares of the directions of `routes`. Those of the ring are cached until links change."""

    routes: Routes
    efficiency: float  # payload's share of a link's rate
    queue_bytes: float  # that each direction holds
    around_s: float  # of a round trip, beside the delay of links
    tcp: TcpFlows = TcpFlows()
    efficiencies: Sequence[tuple[float, float]] = ()  # by rate, in place of `efficiency`

    def __post_init__(self) -> None:
        self._shared = self.routes.shared()
        self._known: LinkSeries | None = None  # links that the values below are for
        self._hop_rates = self._shared  # [states, nodes]: payload bytes/s from each to the next
        self._rates = self._shared  # [states, 2]: of the slowest hop, of all in a row
        self._waits_s: list[float] = []  # how long the ring's messages wait

    def of_ring(self, state: LinkState) -> tuple[np.ndarray, float]:
        """Return two payload rates of a ring in bytes/s, [2], and its messages' mean wait in s.

        The rates are that of the slowest hop, and the harmonic mean over all hops. Messages only
        wait beside competing flows.
        """
        if self._known is not state.series:
            self._know(state.series)
        return self._rates[state.row], self._waits_s[state.row]

    def _know(self, series: LinkSeries) -> None:
        """Compute the ring's rates and waits for all states of `series` at once."""
        states = [LinkState(series, row) for row in range(len(series.flows))]
        alike = len(set(series.flows)) == 1
        flows = series.flows[0] if alike else np.array(series.flows)[:, None]
        shares = self._of_each(series.bytes_per_s, flows, self._ring_connections).T
        hops = reduce(np.minimum, (shares[crossed] for crossed in self.hops.T)).T
        if series.loss.any() or self.tcp.is_bounded:
            bounds = [self.bounds(state, self.hops, self.hops_back) for state in states]
            hops = np.minimum(hops, bounds)
        self._known, self._hop_rates = series, (hops := np.ascontiguousarray(hops))
        self._rates = np.stack([hops.min(axis=1), 1 / np.mean(1 / hops, axis=1)], axis=1)
        self._waits_s = [
            float(self.waits_s(state, self.hops).mean()) if state.flows else 0.0 for state in states
        ]

    def waits_s(self, state: LinkState, paths: Paths) -> np.ndarray:
        """Return seconds spent behind competing flows at each path's narrowest direction."""
        if not state.flows or not self.queue_bytes:
            return np.zeros(len(paths))
        rates = np.where(self._shared[paths] > 0, state.bytes_per_s[paths], np.inf)
        window = WINDOW + WINDOW_PER_DOUBLING * log2(max(1, state.flows))
        return window * self.queue_bytes / rates.min(axis=1)

    def of_workers(self, state: LinkState, own: int) -> np.ndarray:
        """Return payload bytes/s from each of `own` workers a node to the next; inf inside."""
        nodes = self.routes.nodes
        found = np.full(nodes * own, np.inf)
        if nodes > 1:
            self.of_ring(state)
            found[own - 1 :: own] = self._hop_rates[state.row]
        return found

    @cached_property
    def hops(self) -> Paths:
        here = np.arange(self.routes.nodes)
        return self.routes.paths(here, np.roll(here, -1))

    @cached_property
    def hops_back(self) -> Paths:
        here = np.arange(self.routes.nodes)
        return self.routes.paths(np.roll(here, -1), here)

    @cached_property
    def _ring_connections(self) -> np.ndarray:
        return self.loads(self.hops, np.ones(len(self.hops)))

    def loads(self, paths: Paths, volumes: np.ndarray) -> np.ndarray:
        """Return, for each direction, the sum of the volumes that travel along `paths`."""
        loads = np.zeros(len(self._shared))
        np.add.at(loads, paths, volumes[:, None])
        return loads

    def of_each(self, state: LinkState, connections: np.ndarray) -> np.ndarray:
        """Return payload bytes/s of one connection, given their number on each direction."""
        return self._of_each(state.bytes_per_s, state.flows, connections)

    def _of_each(
        self, bytes_per_s: np.ndarray, flows: int | np.ndarray, connections: np.ndarray
    ) -> np.ndarray:
        each = self.tcp.flows
        all_of_them = np.maximum(each, each * connections + flows * self._shared)
        return self.payload(bytes_per_s) * each / all_of_them

    def payload(self, bytes_per_s: np.ndarray) -> np.ndarray:
        """Return the payload bytes/s of links with these rates."""
        return payload_shares(bytes_per_s, self.efficiency, self.efficiencies) * bytes_per_s

    def bounds(self, state: LinkState, paths: Paths, back: Paths) -> np.ndarray:
        """Return payload bytes/s of one message along each path, limited by loss and windows."""
        lossy, tcp = state.loss.any(), self.tcp
        if not (lossy or tcp.is_bounded):
            return np.full(len(paths), np.inf)
        rtt_s = self.round_trips_s(state, paths, back)
        bound = tcp.flow_bound(rtt_s + self.around_s)
        if lossy:  # kernels acknowledge: what ranks take beside counts for nothing
            bound = np.minimum(bound, tcp_bytes_per_s(rtt_s, _losses(state, paths)))
        return tcp.flows * bound

    def in_step(self, state: LinkState, piece: float) -> float:
        """Return payload bytes/s of a ring whose messages of `piece` bytes suffer loss, or inf.

        A rank forwards what it received, so of each two consecutive messages the one that lost more
        counts. Losses of a message are Poisson: the larger of two exceeds their mean m by m e^(-2m)
        (I0(2m) + I1(2m)) (Haight, Handbook of the Poisson distribution, 1967, on differences).
        """
        losses = _losses(state, self.hops)
        if not losses.any() or not piece:
            return inf
        rtt_s = self.round_trips_s(state, self.hops, self.hops_back)
        alone = self.tcp.flows * tcp_bytes_per_s(rtt_s, losses)
        doubled = 2 * losses * piece / SEGMENT_BYTES
        return float((alone / (1 + ive(0, doubled) + ive(1, doubled))).min())

    def round_trips_s(self, state: LinkState, paths: Paths, back: Paths) -> np.ndarray:
        """Return the delay of each path's links, there and back."""
        return state.delay_s[paths].sum(axis=1) + state.delay_s[back].sum(axis=1)

    def of_segments(self, state: LinkState, segment: float) -> float:
        """Return payload bytes/s of the slowest hop of a ring with segments of `segment` bytes."""
        self.of_ring(state)
        rtt_s = self.round_trips_s(state, self.hops, self.hops_back)
        rates = self.tcp.segmented(segment, self._hop_rates[state.row], rtt_s)
        return float(rates.min())


def _losses(state: LinkState, paths: Paths) -> np.ndarray:
    """Return the share of packets lost along each path."""
    return 1 - np.prod(1 - state.loss[paths], axis=1)


def tcp_bytes_per_s(rtt_s: float | np.ndarray, loss: float | np.ndarray) -> np.ndarray:
    """Return payload bytes/s of a flow that loses the share `loss` of its packets (0: inf).

    RFC 5348, section 3.1, with b = 1: one acknowledgement per packet.
    """
    rtt, p = np.asarray(rtt_s, dtype=float), np.asarray(loss, dtype=float)
    waiting_s = (rtt + LEAST_RTO_S) * 3 * np.sqrt(3 * p / 8) * p * (1 + 32 * p**2)
    took_s = rtt * np.sqrt(2 * p / 3) + waiting_s
    return np.divide(SEGMENT_BYTES, took_s, out=np.full_like(took_s, np.inf), where=p > 0)
