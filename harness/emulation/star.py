"""Star: nodes are namespaces of this machine, joined by a switch, each up- and downlink shaped."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pyroute2 import IPRoute

from harness.emulation import veth
from harness.emulation.direction import Direction, ShapingPoint, Source
from harness.emulation.iperf import CompetingPath
from harness.emulation.namespaces import Namespace
from harness.emulation.network import Network
from harness.emulation.probe import Ends
from harness.emulation.rtt_probe import RttPath
from harness.emulation.topology import Topology
from profiles.base import WAYS, Profile, Way
from profiles.limits import MOST_DELAY_MS, as_tuple, check_between, check_whole


@dataclass(frozen=True, kw_only=True)
class Star(Topology):
    """Nodes joined by a switch, each link shaped by the profile; sites may be further apart."""

    twin: ClassVar[str] = "simulated"  # the choice of `network` that is as it, in virtual time
    sites: tuple[int, ...] | None = None  # of each node, counted from 0
    site_delays_ms: tuple[tuple[float, ...], ...] | None = None  # [from site][to site], one way
    flows_between: tuple[tuple[int, int], ...] | None = None  # nodes; None: each and its next

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("site_delays_ms", "flows_between"):
            if (rows := getattr(self, name)) is not None:
                rows = as_tuple(name, rows, "lists")
                rows = tuple(as_tuple(name, row, "lists of numbers") for row in rows)
                object.__setattr__(self, name, rows)
        if self.sites is not None:
            object.__setattr__(self, "sites", as_tuple("sites", self.sites, "whole numbers"))
        if (self.sites is None) != (self.site_delays_ms is None):
            raise ValueError("sites and site_delays_ms must be given both or neither")
        if self.site_delays_ms is not None:
            _check_matrix(self.site_delays_ms)
        for site in self.sites or ():
            check_whole(0, len(self.site_delays_ms or ()) - 1, sites=site)

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        super().check(nodes, profile, dilation)
        if self.sites is not None and len(self.sites) != nodes:
            raise ValueError(
                f"sites must name one site for each of {nodes} nodes, got {self.sites}"
            )
        for pair in self.flows_between or ():
            if len(pair) != 2 or pair[0] == pair[1]:
                raise ValueError(f"flows_between must be pairs of nodes, got {list(pair)}")
            for node in pair:
                check_whole(0, nodes - 1, flows_between=node)

    def needs_netem(self, profile: Profile) -> bool:
        return super().needs_netem(profile) or self.sites is not None

    def busiest_mbit(self, nodes: int, profile: Profile) -> float:
        return nodes * profile.extremes().highest_mbit

    def lay(
        self, ip: IPRoute, held: ExitStack, nodes: int, profile: Profile, dilation: float
    ) -> Network:
        packet_bytes = self.packet_bytes(profile, dilation)
        cable = veth.Cable(cut=self.needs_netem(profile), packet_bytes=packet_bytes)
        wired = [self.node(ip, held, number, profile, cable) for number in range(nodes)]
        switch = Namespace.current()
        held.callback(switch.close)
        directions = [
            Direction(
                f"{way}{number}",
                node_place(wired[number], way, self._sources(number, wired)),
                partial(profile.link, node=number, way=way),
                dilation,
                self.queue(profile),
                access_ends(wired[number], switch, way),
            )
            for number in range(nodes)
            for way in WAYS
        ]
        settings = self.settings(nodes, profile, dilation)
        tours = ring_tours(wired, directions) if nodes > 1 else []
        return Network(ip, wired, directions, profile, settings, tours, self._pairs(wired))

    def _sources(self, number: int, nodes: Sequence[veth.EmulatedNode]) -> list[Source]:
        """Every site's nodes, and how far they are from node `number`."""
        if self.sites is None or self.site_delays_ms is None:
            return []
        here = self.sites[number]
        return [
            Source(
                tuple(nodes[n].address for n, s in enumerate(self.sites) if s == site), row[here]
            )
            for site, row in enumerate(self.site_delays_ms)
            if site in self.sites
        ]

    def _pairs(self, nodes: Sequence[veth.EmulatedNode]) -> list[CompetingPath]:
        size = len(nodes)
        ring = tuple((n, (n + 1) % size) for n in range(size)) if size > 1 else ()
        return [
            CompetingPath(f"{a}-{b}", nodes[a].namespace, nodes[b].namespace, nodes[b].address)
            for a, b in self.flows_between or ring
        ]


def node_place(node: veth.EmulatedNode, way: Way, sources: Sequence[Source] = ()) -> ShapingPoint:
    """Interfaces at which one direction of `node`'s link is shaped."""
    assert node.uplink is not None
    if way == "up":
        return ShapingPoint(node.uplink, node.cut and node.cut.inner)
    return ShapingPoint(node.port, node.cut and node.cut.outer, sources)


def access_ends(node: veth.EmulatedNode, switch: Namespace, way: Way) -> Ends:
    """A flow that crosses one direction of `node`'s link alone: it ends or begins in the switch."""
    if way == "up":
        return Ends(node.namespace, switch, veth.SWITCH)
    return Ends(switch, node.namespace, node.address)


def ring_tours(
    nodes: Sequence[veth.EmulatedNode], directions: Sequence[Direction]
) -> list[RttPath]:
    """Round trips from each node to the next: every link is crossed both ways."""
    by_name = {direction.name: direction for direction in directions}
    tours = []
    for here, node in enumerate(nodes):
        there = (here + 1) % len(nodes)
        away, back = node.address, nodes[there].address
        crossed = [(f"up{here}", away), (f"down{there}", away)]
        crossed += [(f"up{there}", back), (f"down{here}", back)]
        ends = Ends(node.namespace, nodes[there].namespace, back)
        tours.append(RttPath(f"{here}-{there}", ends, [(by_name[n], a) for n, a in crossed]))
    return tours


def _check_matrix(rows: tuple[tuple[float, ...], ...]) -> None:
    for row in rows:
        if len(row) != len(rows):
            raise ValueError(f"site_delays_ms must be square, got a row of {len(row)}: {list(row)}")
        for delay in row:
            check_between(0, MOST_DELAY_MS, site_delays_ms=delay)
