"""What collectives take over links whose rates change meanwhile: the alpha-beta model, integrated.

A message of b bytes takes alpha + b / rate (Hockney, 1994). A ring all-reduce of b bytes is
2(P-1) messages in a row of b/P each (Patarasuk & Yuan, 2009), an all-gather P-1 whose lengths may
differ: the busiest link then carries the total less the smallest piece (Thakur et al., 2005, for
equal pieces). Rates change with the profile, so bytes are carried at each look's rate until none
are left. A ring is as fast as its slowest link is at the moment: every step waits for the one
before it on the left. An all-to-all is not bound so: each link carries what is its own.

Ranks are in the order of the nodes, so of a ring one connection leaves and one enters a node,
whatever it holds; traffic inside a node is free. Competing flows run from each node to the next
and share its links evenly, flow by flow. Delays of links count once a message; jitter is taken as
its mean, 0, and reordering as none. Loss bounds a flow by the TCP throughput equation of RFC 5348,
section 3.1 (Padhye et al., 1998), which is Reno's: CUBIC recovers faster over long paths.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, sqrt

from harness.simulate.conditions import Conditions, Look
from profiles.base import Link

BYTES_PER_MBIT = 125_000
SEGMENT_BYTES = 1448  # of TCP payload at MTU 1500 with timestamps
LEAST_RTO_S = 0.2  # Linux's, on top of the round trip


@dataclass
class Costs:
    """Emulated times at which collectives end; `carried` are their bytes, as frames, by link."""

    conditions: Conditions
    workers_per_node: int
    alpha_s: float  # of a message, beside the delay of links
    operation_s: float  # of a collective, once
    efficiency: float  # payload's share of a link's rate
    carried: dict[str, float] = field(default_factory=dict, init=False)

    def all_reduce(self, start_s: float, nbytes: int, workers: int) -> float:
        """End of a ring all-reduce of `nbytes` that all began by `start_s`."""
        volume = 2 * (workers - 1) / workers * nbytes
        return self._ring(start_s, [volume] * self.conditions.nodes, 2, workers)

    def all_gather(self, start_s: float, sizes: Sequence[int]) -> float:
        """End of a ring all-gather of pieces of `sizes` bytes, by rank."""
        into = [*sizes[self.workers_per_node :: self.workers_per_node], sizes[0]]
        return self._ring(start_s, [sum(sizes) - size for size in into], 1, len(sizes))

    def all_to_all(self, start_s: float, sizes: Sequence[Sequence[int]]) -> float:
        """End of an all-to-all; `sizes[r][p]` bytes go from rank r to p, all at once."""
        if len(sizes) == 1:
            return start_s
        look = self.conditions.look(start_s)
        delays = [link.delay_ms for link in look.ups], [link.delay_ms for link in look.downs]
        latency_s = (len(sizes) - 1) * self.alpha_s + (max(delays[0]) + max(delays[1])) / 1000
        begin_s, end_s = start_s + self.operation_s + latency_s, start_s
        own = self.workers_per_node * (len(sizes) - self.workers_per_node)  # connections of a node
        for node in range(self.conditions.nodes):
            leaving, entering = self._across(node, sizes)
            for way, volume in (("up", leaving), ("down", entering)):
                self._count(f"{way}{node}", volume)
                rate = partial(self._link_rate, way=way, node=node, own=own)
                end_s = max(end_s, self.conditions.finish(begin_s, volume, rate))
        return end_s

    def _ring(self, start_s: float, volumes: list[float], rounds: int, workers: int) -> float:
        """`volumes[n]` bytes leave node n, in `rounds` times around."""
        if workers == 1:
            return start_s
        latency_s = self.operation_s + rounds * (workers - 1) * self.alpha_s
        nodes = self.conditions.nodes
        if nodes == 1:
            return start_s + latency_s
        for node, volume in enumerate(volumes):
            self._count(f"up{node}", volume)
            self._count(f"down{(node + 1) % nodes}", volume)
        latency_s += rounds * self._around_s(self.conditions.look(start_s))
        return self.conditions.finish(start_s + latency_s, max(volumes), self._ring_rate)

    def _around_s(self, look: Look) -> float:
        """Delay of what visits every rank: of all hops, less the one back to where it began."""
        hops = [
            (look.ups[node].delay_ms + look.downs[(node + 1) % len(look.ups)].delay_ms) / 1000
            for node in range(len(look.ups))
        ]
        return sum(hops) - (min(hops) if self.workers_per_node == 1 else 0.0)

    def _ring_rate(self, look: Look) -> float:
        """Payload bytes/s of the slowest hop; one connection crosses each."""
        slowest = inf
        for node, up in enumerate(look.ups):
            after = (node + 1) % len(look.ups)
            down = look.downs[after]
            share = min(up.rate_mbit, down.rate_mbit) * BYTES_PER_MBIT / (1 + look.flows)
            back = look.ups[after], look.downs[node]
            slowest = min(slowest, self.efficiency * share, self._bound((up, down), back))
        return slowest

    def _link_rate(self, look: Look, way: str, node: int, own: int) -> float:
        """Payload bytes/s that `own` connections get of one direction of a node's link."""
        up, down = look.ups[node], look.downs[node]
        link = up if way == "up" else down
        share = link.rate_mbit * BYTES_PER_MBIT * own / (own + look.flows)
        return min(self.efficiency * share, own * self._bound((up, down), (up, down)))

    def _bound(self, way: tuple[Link, Link], back: tuple[Link, Link]) -> float:
        loss = 1 - (1 - way[0].loss) * (1 - way[1].loss)
        delay_ms = sum(link.delay_ms for link in (*way, *back))
        return tcp_bytes_per_s(delay_ms / 1000 + 2 * self.alpha_s, loss)

    def _across(self, node: int, sizes: Sequence[Sequence[int]]) -> tuple[int, int]:
        """Bytes that leave and that enter `node`."""
        first = node * self.workers_per_node
        inside = range(first, first + self.workers_per_node)
        outside = [rank for rank in range(len(sizes)) if rank not in inside]
        leaving = sum(sizes[rank][peer] for rank in inside for peer in outside)
        return leaving, sum(sizes[peer][rank] for rank in inside for peer in outside)

    def _count(self, link: str, volume: float) -> None:
        self.carried[link] = self.carried.get(link, 0.0) + volume / self.efficiency


def tcp_bytes_per_s(rtt_s: float, loss: float) -> float:
    """Payload of one flow that loses the share `loss` of its packets; inf without loss.

    RFC 5348, section 3.1, with b = 1: one acknowledgement a packet.
    """
    if not loss:
        return inf
    waiting_s = (rtt_s + LEAST_RTO_S) * 3 * sqrt(3 * loss / 8) * loss * (1 + 32 * loss**2)
    return SEGMENT_BYTES / (rtt_s * sqrt(2 * loss / 3) + waiting_s)
