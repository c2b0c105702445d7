"""Dumbbell: nodes at two halves of a switch, joined by one shaped trunk that all share."""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from pyroute2 import IPRoute

from harness.config.network import check_halves, check_nodes, on_left
from harness.emulation import links, veth
from harness.emulation.direction import Direction, ShapingPoint
from harness.emulation.iperf import CompetingPath
from harness.emulation.namespaces import Namespace
from harness.emulation.network import Network
from harness.emulation.probe import Ends
from harness.emulation.rtt_probe import RttPath
from harness.emulation.star import access_ends, node_place
from harness.emulation.topology import Topology
from profiles.base import WAYS, Profile, Way

TRUNK = 0  # the node whose link the profile is asked for


@dataclass(frozen=True, kw_only=True)
class Dumbbell(Topology):
    """Two switches joined by a trunk that the profile shapes (up: left to right).

    Access links are unshaped, or shaped by `access`. One more host on each half carries the
    competing flows, so that these share only the trunk.
    """

    twin: ClassVar[str] = "simulated_dumbbell"  # the choice that is as it, in virtual time
    left: int | None = None  # nodes on the left half; None: half of them, rounded up
    access: Any = None  # profile of every node's own link; None: only the trunk is shaped

    def __post_init__(self) -> None:
        super().__post_init__()
        check_halves(self.left, self.access)

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        super().check(nodes, profile, dilation)
        check_nodes(nodes, self.left)
        if self.access is not None:
            for rate_mbit in self.access.extremes()[:2]:
                links.rate_bytes(rate_mbit / dilation)

    def check_followed(self, nodes: int, profile: Profile, dilation: float) -> None:
        super().check_followed(1, profile, dilation)  # of the trunk
        if self.access is not None:
            super().check_followed(nodes, self.access, dilation)

    def needs_netem(self, profile: Profile) -> bool:
        return super().needs_netem(profile) or (
            self.access is not None and super().needs_netem(self.access)
        )

    def busiest_mbit(self, nodes: int, profile: Profile) -> float:
        return 2 * profile.extremes().highest_mbit

    def packet_bytes(self, profile: Profile, dilation: float) -> int | None:
        crossed = [each for each in (profile, self.access) if each is not None]
        limits = [super(Dumbbell, self).packet_bytes(each, dilation) for each in crossed]
        return min((limit for limit in limits if limit is not None), default=None)

    def lay(
        self, ip: IPRoute, held: ExitStack, nodes: int, profile: Profile, dilation: float
    ) -> Network:
        left = on_left(nodes, self.left)
        trunk = veth.add_trunk(ip, cut=super().needs_netem(profile))
        shaped = self.access is not None
        cut = shaped and super().needs_netem(self.access)
        packet_bytes = self.packet_bytes(profile, dilation)
        cable = veth.Cable(shaped, cut, packet_bytes=packet_bytes)
        wired = [
            self.node(ip, held, n, profile, cable._replace(right=n >= left)) for n in range(nodes)
        ]
        cable = veth.Cable(shaped=False, packet_bytes=packet_bytes)
        hosts = [
            self.node(ip, held, nodes + k, profile, cable._replace(right=bool(k))) for k in (0, 1)
        ]
        switch = Namespace.current()
        held.callback(switch.close)
        directions = [
            Direction(
                f"trunk_{way}",
                _trunk_place(trunk, way),
                partial(profile.link, node=TRUNK, way=way),
                dilation,
                self.queue(profile),
                _across(hosts, way),
            )
            for way in WAYS
        ]
        settings = self.settings(nodes, profile, dilation) | {"left": left}
        pairs = [CompetingPath(f"trunk_{way}", *_across(hosts, way)) for way in WAYS]
        over = zip(directions, (host.address for host in hosts), strict=True)
        tours = [RttPath("trunk", _across(hosts, "up"), list(over))]
        if shaped:
            access = self._access(wired, switch, dilation)
            directions += access
            tours += [
                RttPath(up.name.replace("up", "node"), up.ends, [(up, ""), (down, "")])
                for up, down in zip(access[::2], access[1::2], strict=True)
            ]
        return Network(ip, wired, directions, profile, settings, tours, pairs, hosts)

    def _access(
        self, nodes: list[veth.EmulatedNode], switch: Namespace, dilation: float
    ) -> list[Direction]:
        queue = self.queue(self.access)
        return [
            Direction(
                f"{way}{number}",
                node_place(node, way),
                partial(self.access.link, node=number, way=way),
                dilation,
                queue,
                access_ends(node, switch, way),
            )
            for number, node in enumerate(nodes)
            for way in WAYS
        ]


def _trunk_place(trunk: veth.Trunk, way: Way) -> ShapingPoint:
    if way == "up":
        return ShapingPoint(trunk.left, trunk.cut and trunk.cut.inner)
    return ShapingPoint(trunk.right, trunk.cut and trunk.cut.outer)


def _across(hosts: list[veth.EmulatedNode], way: Way) -> Ends:
    """Return a flow between the two hosts, which crosses only one direction of the trunk."""
    sender, receiver = hosts if way == "up" else hosts[::-1]
    return Ends(sender.namespace, receiver.namespace, receiver.address)
