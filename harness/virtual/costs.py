"""Times of collectives over links whose rates change meanwhile: the alpha-beta model, integrated.

A message of b bytes takes alpha + b / rate (Hockney, 1994). Rates change with the profile. So bytes
are carried at the rate of each update until none are left.

Collectives of P workers:
- Ring reduce-scatter and all-gather are P-1 messages in a row, of b/P bytes each. An all-reduce is
  one after the other (Patarasuk & Yuan, 2009).
- Pieces of an all-gather may differ in length. The busiest hop then carries the total less the
  smallest piece (Thakur et al., 2005, for equal pieces). The longest piece travels P-1 hops in
  chunks, and each chunk is forwarded once it is there.
- A broadcast hands b bytes along the ring, in pieces so small that all hops are busy at once
  (Sanders, Speck & Traeff, 2009, pipelined). Every hop carries b bytes, and latency counts P-1
  times.
- In an all-to-all, and for sends at the same time, every connection is independent of the others.

Links:
- A ring is as fast as its slowest hop at the moment, because every step waits for the one before it
  on the left.
- Ranks are in the order of the nodes. So one connection of a ring enters each node and one leaves
  it, however many ranks a node has. A link carries what one of all P ranks sends.
- Traffic inside a node is free.
- Connections that cross the same direction share it evenly, also with competing flows. A ring over
  a dumbbell crosses the trunk once each way. An all-to-all has a connection for every two workers
  on different halves.
- Delays of links count once a message; all-reduces in segments follow `harness.virtual.tcp_flows`.
  Jitter counts as its mean, 0, and reordering as none.
- Loss bounds a flow by the TCP throughput equation of RFC 5348, section 3.1 (Padhye et al., 1998).
  That is Reno's; CUBIC recovers faster over long paths. Round a ring, of two messages the one that
  lost more counts (`BandwidthShares.in_step`).
- Noise scales the time of messages, bytes and queues. Delays of links are exact.

Queues: while flows compete, their windows fill the queues, as CUBIC leaves them. Every message
waits for such a window, or takes as long as its share of the rate makes it, if that is longer. A
window is split over two queues: its flow's data is in one, and its acknowledgements are in the
other, behind the data of the flow that leaves the receiver. Round a ring, long and short queues
alternate. In links.csv of contended runs on four and eight nodes, queues are filled to 0.38 to 0.51
in the mean; with eight flows a link, to 0.57. Torch sends a message when its receiver has said that
it is ready. So both wait, in one queue each. In an all-gather all receivers are ready at once, and
its messages wait in every other queue.

Workers do not finish a ring at the same time. The worker behind the slowest hop waits for all that
crosses it, and the worker that sends over it already has everything
(harness/virtual/ring_finish.py). A collective begins when all have finished the last.

HTB's links are token buckets. A link that was idle lets `burst_s` of its rate through at once. A
packet passes whole, however few tokens there are, and the next packet pays for it (`packet_bytes`).
So a collective takes less than its bytes by both, unless another flow keeps the bucket empty.

Wakings: where nodes share processors, a process that waits for a message must be woken. While many
bytes are on their way, the next message is awaited meanwhile. So this is a bound and no term:
besides the delay of links, a collective takes at least its messages' wakings. The receiver in a
ring announces for every message that it is ready, so both ends have to run. Ranks that share a
processor hinder each other, and a waking takes longer by the square root of their number (0.78,
1.16 and 1.49 ms a message, measured on 2, 4 and 8 nodes of two cores). In an all-gather, an
all-to-all and sends, all receives are posted before, and a waking does not take longer (0.7 and
0.62 ms on 4 and 8).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any

import numpy as np

from harness.config.backends import BETWEEN_CPUS
from harness.virtual.bandwidth_shares import BandwidthShares
from harness.virtual.link_states import LinkState, LinkStates
from harness.virtual.noise import Noise
from harness.virtual.ring_finish import last_packet, ring_ends_s
from harness.virtual.routes import VOID
from harness.virtual.tcp_flows import AT_A_TIME, TcpFlows

CHUNK_BYTES = BETWEEN_CPUS.chunk_bytes  # of an all-gather
POSTED = {"all_gather", "all_to_all", "send"}  # all receives are, before it begins


@dataclass
class Costs:
    """Emulated times at which collectives end. `carried` counts their bytes, as frames, by link.

    Start times must not decrease from one call to the next.
    """

    link_states: LinkStates
    workers_per_node: int
    alpha_s: float  # of a message, beside the delay of links
    operation_s: float  # of a collective, once
    efficiency: float  # payload's share of a link's rate
    queue_bytes: float = 0.0  # that each direction holds
    noise: Noise = field(default_factory=Noise)
    wake_s: float = 0.0  # from a message's arrival until the process that waits for it runs
    cpu_oversubscription: float = 1.0  # workers that share a processor
    burst_s: float = 0.0  # of its rate, that an idle link lets through at once
    packet_bytes: float = 0.0  # most in one packet, which passes whole; 0: bytes flow
    tcp: TcpFlows = TcpFlows()
    efficiencies: Sequence[tuple[float, float]] = ()  # of rates in bytes/s, for `efficiency`

    def __post_init__(self) -> None:
        self._names = self.link_states.routes.names
        self._carried = np.zeros(len(self._names) + 1)
        routes, around_s = self.link_states.routes, 2 * self.alpha_s
        self._links = BandwidthShares(
            routes, self.efficiency, self.queue_bytes, around_s, self.tcp, self.efficiencies
        )

    @property
    def carried(self) -> dict[str, float]:
        return {n: float(b) for n, b in zip(self._names, self._carried, strict=False) if b}

    def early_s(self, start_s: float, end_s: float, collective: str, *asked: Any) -> np.ndarray:
        """Return, [workers], how long before the last each finishes the collective just asked for.

        It depends on what crosses slow hops to each, at the rates at the end, and on chance.
        """
        workers = asked[1] if collective == "all_reduce" else len(asked[0])
        wake_s = self._wake_s(collective in POSTED)
        done_s = np.zeros(workers)
        if collective == "all_reduce":
            pieces = np.full(workers, asked[0] / workers)
            done_s = self._apart_s(start_s, end_s, pieces, 2 * (workers - 1), inf, wake_s)
        elif collective == "all_gather":
            pieces = np.asarray(asked[0], dtype=float)
            done_s = self._apart_s(start_s, end_s, pieces, workers - 1, CHUNK_BYTES, wake_s)
        done_s -= wake_s * np.array(self.noise.early(workers, workers - 1))
        return done_s.max() - done_s

    def _apart_s(
        self,
        start_s: float,
        end_s: float,
        pieces: np.ndarray,
        messages: int,
        at_once: float,
        wake_s: float,
    ) -> np.ndarray:
        """Return, [workers], how long each is busy with a ring. The last is busy all the time.

        No worker is busy for less than its wake-ups or, if shorter, than the ring takes.
        """
        state, took_s = self.link_states.at(end_s), end_s - start_s
        rates = self._links.of_workers(state, self.workers_per_node)
        if (rates == rates[0]).all() and (pieces == pieces[0]).all():
            return np.full(len(pieces), took_s)
        bucket = (0.0, 0.0) if state.flows else (self.burst_s, self.packet_bytes)
        ring_s = ring_ends_s(rates, pieces, messages, at_once, *bucket)
        if not (most_s := float(ring_s.max())):
            return np.full(len(pieces), took_s)
        apart_s = took_s - (most_s - ring_s) * min(1.0, took_s / most_s)
        return np.maximum(apart_s, min(took_s, messages * wake_s))

    def all_reduce(self, start_s: float, nbytes: int, workers: int) -> float:
        """Return the end of a ring all-reduce of `nbytes` that all had begun by `start_s`."""
        piece = nbytes / workers
        volume, segment = 2 * (workers - 1) / workers * nbytes, self.tcp.segment(piece)
        volume += 2 * (workers - 1) * self.tcp.segments(piece) * self.tcp.message_bytes
        return self._ring(start_s, volume, 2, workers, piece, segment=segment)

    def reduce_scatter(
        self, start_s: float, nbytes: int, workers: int, segmented: bool = False
    ) -> float:
        """Return the end of a ring reduce-scatter of `nbytes`, of which each worker keeps a part.

        `segmented` models a reduce between CPUs, which sends all segments but the last two first,
        so that only two of a worker's own part remain to be sent.
        """
        piece = nbytes / workers
        segment, messages = 0.0, workers - 1
        if segmented:
            segment = self.tcp.segment(piece)
            messages = workers * self.tcp.segments(piece) - AT_A_TIME
        volume = nbytes - (AT_A_TIME * segment or piece) + messages * self.tcp.message_bytes
        return self._ring(start_s, volume, 1, workers, piece, segment=segment)

    def all_gather(self, start_s: float, sizes: Sequence[int]) -> float:
        """Return the end of a ring all-gather of pieces of `sizes` bytes, by rank."""
        pieces = np.asarray(sizes, dtype=float)
        sent = pieces + np.ceil(pieces / CHUNK_BYTES) * self.tcp.message_bytes
        enters = np.roll(sent[:: self.workers_per_node], -1)  # of the rank at the hop's other end
        hops, longest = len(enters) - 1, float(sent.max())
        travel = longest + max(0, hops - 1) * min(longest, CHUNK_BYTES + self.tcp.message_bytes)
        windows = len(enters) / 2
        volumes = sent.sum() - enters
        return self._ring(start_s, volumes, 1, len(sizes), pieces, travel, windows, posted=True)

    def broadcast(self, start_s: float, nbytes: int, workers: int, root: int = 0) -> float:
        """Return the end of a pipelined broadcast of `nbytes` from rank `root`."""
        volumes = np.full(self.link_states.routes.nodes, float(nbytes))
        volumes[root // self.workers_per_node - 1] = 0.0  # the hop back into the root's node
        return self._ring(start_s, volumes, 1, workers, 0.0)

    def all_to_all(self, start_s: float, sizes: Sequence[Sequence[int]]) -> float:
        """Return the end of an all-to-all of `sizes[r][p]` bytes from rank r to p; count them."""
        if len(sizes) == 1:
            return start_s
        own = self.workers_per_node
        connections = np.full((len(sizes) // own,) * 2, own * own)
        return self._at_once(start_s, self.operation_s, len(sizes) - 1, sizes, connections)

    def send(self, start_s: float, sizes: Sequence[Sequence[int]]) -> float:
        """Return the end of sends of `sizes[r][p]` bytes from rank r to p. 0 means no message."""
        connections = self._by_node(np.asarray(sizes) > 0)
        if not connections.any():
            return start_s
        return self._at_once(start_s, 0.0, 1, sizes, connections)

    def _ring(
        self,
        start_s: float,
        volumes: float | np.ndarray,
        rounds: int,
        workers: int,
        pieces: float | np.ndarray,
        travel: float = 0.0,
        windows: float | None = None,
        posted: bool = False,
        segment: float = 0.0,
    ) -> float:
        """Return the end of a ring in `rounds` rounds, where `volumes[n]` bytes leave node n.

        Messages have `pieces` bytes. The slowest piece crosses hops for `travel` bytes, one after
        the other, and waits for `windows` windows of competing flows, by default one per message.
        `posted` says that all receives are posted before it begins. Pieces are sent in segments of
        `segment` bytes; 0 sends them whole.
        """
        if workers == 1:
            return start_s
        stretch, messages = self._stretch(), rounds * (workers - 1)
        latency_s, wakes_s = self._handled(self.operation_s, messages, stretch, posted)
        nodes = self.link_states.routes.nodes
        if nodes == 1:
            return start_s + max(latency_s, wakes_s)
        volumes = np.broadcast_to(volumes, nodes)
        np.add.at(self._carried, self._links.hops, volumes[:, None] / self.efficiency)
        state = self.link_states.at(start_s)
        rtt_s = self._links.round_trips_s(state, self._links.hops, self._links.hops_back).max()
        waits_for_segments = segment and (rtt_s or self.tcp.segment_s)
        delay_s = float(rtt_s) if waits_for_segments else rounds * self._around_s(state)
        delay_s += self.tcp.slow_start_s(
            float(volumes.max()), float(self._links.of_ring(state)[0][0]), float(rtt_s)
        )
        carried = np.array([volumes.max(), travel] if travel else [volumes.max()])
        windows = messages if windows is None else windows

        def rates(state: LinkState) -> np.ndarray:
            per_s, wait_s = self._links.of_ring(state)
            per_s, waiting = per_s[: len(carried)], bool(carried[0] and wait_s)
            if state.loss.any():
                per_s = np.minimum(per_s, self._links.in_step(state, float(np.max(pieces))))
            return np.minimum(per_s, carried / (windows * wait_s)) if waiting else per_s

        begin_s = start_s + latency_s + delay_s
        carried = self._beyond_bursts(self.link_states.at(begin_s), carried, pieces, nodes - 1)
        if waits_for_segments:
            end_s = self._in_segments(begin_s, stretch * carried, segment, rates)
        else:
            end_s = self.link_states.finish(begin_s, stretch * carried, rates)
        return max(end_s, start_s + wakes_s + delay_s)

    def _in_segments(
        self,
        begin_s: float,
        carried: np.ndarray,
        segment: float,
        rates: Callable[[LinkState], np.ndarray],
    ) -> float:
        """Return the end of a ring that waits for segments. The first two are already under way."""
        first = np.minimum(carried, AT_A_TIME * segment)
        begun_s = self.link_states.finish(begin_s, first, rates)

        def waiting(state: LinkState) -> np.ndarray:
            return np.minimum(rates(state), self._links.of_segments(state, segment))

        return self.link_states.finish(begun_s, carried - first, waiting)

    def _stretch(self) -> float:
        """Return the noise factor on the whole time of the next collective."""
        return self.noise.of_exchange * self.noise.factor()

    def _beyond_bursts(
        self, state: LinkState, carried: np.ndarray, pieces: float | np.ndarray, hops: int
    ) -> np.ndarray:
        """Return how many of the `carried` bytes a hop must still pace, at least 0.

        A full token bucket passes a burst at once, and the last packet in debt. `carried` has one
        entry for the slowest hop, or a second one for `hops` hops in a row. With competing flows
        there is no burst.
        """
        if state.flows:
            return carried
        rates = self._links.of_ring(state)[0][: len(carried)]
        times = np.array([1, hops])[: len(carried)]
        bursts = self.burst_s * rates if self.burst_s else 0.0
        rest = float(np.mean(last_packet(pieces, self.packet_bytes)))
        return np.maximum(0.0, carried - times * (bursts + rest))

    def _handled(
        self, operation_s: float, messages: int, stretch: float, posted: bool
    ) -> tuple[float, float]:
        """Return the seconds that consecutive messages cost beside their bytes, and the minimum."""
        factor, wakes_s = stretch * self.noise.latency_factor(messages), self._wake_s(posted)
        return factor * (operation_s + messages * self.alpha_s), factor * messages * wakes_s

    def _wake_s(self, posted: bool) -> float:
        """Return the seconds to wake both ends of a message."""
        return self.wake_s if posted else sqrt(self.cpu_oversubscription) * self.wake_s

    def _around_s(self, state: LinkState) -> float:
        """Return the delay of a message that visits every rank: all hops but the last one."""
        hops = state.delay_s[self._links.hops].sum(axis=1)
        return float(hops.sum() - (hops.min() if self.workers_per_node == 1 else 0.0))

    def _at_once(
        self,
        start_s: float,
        operation_s: float,
        messages: int,
        sizes: Sequence[Sequence[int]],
        connections: np.ndarray,
    ) -> float:
        """Return the end when every rank sends to every other, over `connections`, [nodes, nodes].

        A rank handles `messages` of them.
        """
        told = np.asarray(sizes, dtype=float)
        volumes = self._by_node(told + (told > 0) * self.tcp.message_bytes)
        stretch = self._stretch()
        latency_s, wakes_s = self._handled(operation_s, messages, stretch, posted=True)
        begin_s, least_s = start_s + latency_s, start_s + wakes_s
        senders, receivers = np.nonzero(connections * ~np.eye(len(connections), dtype=bool))
        if not len(senders):
            return max(begin_s, least_s)
        paths = self.link_states.routes.paths(senders, receivers)
        back = self.link_states.routes.paths(receivers, senders)
        own, bytes_ = connections[senders, receivers], volumes[senders, receivers]
        loads, flows = self._links.loads(paths, bytes_), self._links.loads(paths, own)
        loads[VOID] = 0.0
        self._carried += loads / self.efficiency
        used = np.flatnonzero(loads)

        def rates(state: LinkState) -> np.ndarray:
            """Return bytes/s of every used direction. Loss may limit its connections."""
            bound = np.full(len(flows), np.inf)
            np.minimum.at(bound, paths, self._links.bounds(state, paths, back)[:, None])
            return np.minimum(self._links.of_each(state, flows), bound)[used] * flows[used]

        state = self.link_states.at(begin_s)
        delay_s = float(state.delay_s[paths].sum(axis=1).max())
        if self.tcp.initial_window_bytes < inf:
            fair = self._links.of_each(state, flows)[paths].min(axis=1)
            fair = np.minimum(fair, self._links.bounds(state, paths, back))
            rtts_s = self._links.round_trips_s(state, paths, back)
            delay_s += max(map(self.tcp.slow_start_s, bytes_, fair, rtts_s))
        waited_s = begin_s + delay_s + stretch * float(self._links.waits_s(state, paths).max())
        waited_s = max(waited_s, least_s + delay_s)
        if not len(used):
            return waited_s
        left = loads[used]
        if self.burst_s and not state.flows:
            left = np.maximum(0.0, left - self.burst_s * rates(state))
        end_s = self.link_states.finish(begin_s + delay_s, stretch * left, rates)
        return max(waited_s, end_s)

    def _by_node(self, by_rank: Sequence[Sequence[int]] | np.ndarray) -> np.ndarray:
        """Sum [ranks, ranks] over the ranks of each pair of nodes, as [nodes, nodes]."""
        ranks, own = np.asarray(by_rank, dtype=float), self.workers_per_node
        nodes = len(ranks) // own
        return ranks.reshape(nodes, own, nodes, own).sum(axis=(1, 3))
