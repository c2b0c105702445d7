"""Star: nodes are namespaces of this machine, joined by a switch with shaped links."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyroute2 import IPRoute

from harness.config.sites import Sites, check_sites, sites_of
from harness.emulation import veth
from harness.emulation.direction import Direction, ShapingPoint, Source
from harness.emulation.iperf import CompetingPath
from harness.emulation.namespaces import Namespace
from harness.emulation.network import Network
from harness.emulation.probe import Ends
from harness.emulation.rtt_probe import RttPath
from harness.emulation.topology import Topology
from profiles.base import WAYS, Profile, Way


@dataclass(frozen=True, kw_only=True)
class Star(Topology):
    """Nodes joined by a switch. The profile shapes each link, and sites add distances."""

    sites: Any = None  # of each node: a number from 0, or, with `regions`, a name
    site_delays_ms: Any = None  # [from site][to site], one way
    regions: str | None = None  # a CSV of regions, whose round trips are the delays

    def __post_init__(self) -> None:
        super().__post_init__()
        sites_of(self.sites, self.site_delays_ms, self.regions)

    @property
    def twin(self) -> str:
        """Name of the equivalent choice of `network` in virtual time."""
        return "simulated" if self.sites is None else "simulated_wan"

    @property
    def _sites(self) -> Sites | None:
        return sites_of(self.sites, self.site_delays_ms, self.regions)

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        super().check(nodes, profile, dilation)
        check_sites(self._sites, nodes)

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
        """Return every site's nodes, and their distance from node `number`."""
        if (told := self._sites) is None:
            return []
        here = told.of_nodes[number]
        return [
            Source(
                tuple(nodes[n].address for n, s in enumerate(told.of_nodes) if s == site), row[here]
            )
            for site, row in enumerate(told.delays_ms)
            if site in told.of_nodes
        ]

    def _pairs(self, nodes: Sequence[veth.EmulatedNode]) -> list[CompetingPath]:
        size = len(nodes)
        ring = [(n, (n + 1) % size) for n in range(size)] if size > 1 else []
        return [
            CompetingPath(f"{a}-{b}", nodes[a].namespace, nodes[b].namespace, nodes[b].address)
            for a, b in ring
        ]


def node_place(node: veth.EmulatedNode, way: Way, sources: Sequence[Source] = ()) -> ShapingPoint:
    """Return the interfaces at which one direction of `node`'s link is shaped."""
    assert node.uplink is not None
    if way == "up":
        return ShapingPoint(node.uplink, node.cut and node.cut.inner)
    return ShapingPoint(node.port, node.cut and node.cut.outer, sources)


def access_ends(node: veth.EmulatedNode, switch: Namespace, way: Way) -> Ends:
    """Return a flow over one direction of `node`'s link, with its other end in the switch."""
    if way == "up":
        return Ends(node.namespace, switch, veth.SWITCH)
    return Ends(switch, node.namespace, node.address)


def ring_tours(
    nodes: Sequence[veth.EmulatedNode], directions: Sequence[Direction]
) -> list[RttPath]:
    """Return round trips from each node to the next, which cross every link both ways."""
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
