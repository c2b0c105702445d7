"""Base class of emulated networks in namespaces: TCP settings, and how a network is brought up."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any

from pyroute2 import IPRoute

from harness.emulation import impairments, iperf, links, tcp_settings, user_namespace, veth
from harness.emulation.network import Network
from harness.emulation.packets import LARGEST_BYTES
from harness.emulation.shaping import Shaping
from profiles.base import Profile
from profiles.limits import check_choice, check_whole

OFFLOADS = ("auto", "keep", "off")
PACKET_S = 0.001  # time of a node's longest packet at the link's highest rate
BUFFER_BYTES = (1 << 16, (1 << 31) - 1)


@dataclass(frozen=True, kw_only=True)
class Topology(Shaping, ABC):
    """Emulated network: real TCP over shaped links that namespaces of this process own."""

    congestion_control: str = "cubic"  # any that the kernel supports
    offload: str = "auto"  # auto | keep | off: whether packets may be longer than an MTU
    receive_buffer_bytes: int = 32 << 20  # limit per socket
    send_buffer_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(*BUFFER_BYTES, receive_buffer_bytes=self.receive_buffer_bytes)
        check_whole(*BUFFER_BYTES, send_buffer_bytes=self.send_buffer_bytes)
        check_choice(OFFLOADS, offload=self.offload)

    @abstractmethod
    def lay(
        self, ip: IPRoute, held: ExitStack, nodes: int, profile: Profile, dilation: float
    ) -> Network:
        """Wire `nodes` in the calling thread's namespace, unshaped; `held` releases them."""

    @abstractmethod
    def busiest_mbit(self, nodes: int, profile: Profile) -> float:
        """Return the emulated rate of all flows if every shaper passes its highest rate at once."""

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        """Check settings before a network is started.

        Raise ValueError for settings out of range, NetworkError for what this kernel lacks.
        """
        if not 1 <= nodes <= veth.MOST_NODES:
            raise ValueError(f"nodes must be in [1, {veth.MOST_NODES}], got {nodes}")
        if not dilation > 0:
            raise ValueError(f"emulation.dilation must be > 0, got {dilation}")
        extremes = profile.extremes()
        for rate_mbit in (extremes.lowest_mbit, extremes.highest_mbit):
            links.rate_bytes(rate_mbit / dilation)
        tcp_settings.require_known(congestion_control=self.congestion_control)
        if self.needs_netem(profile):
            impairments.require()
        if extremes.flows:
            iperf.check()

    def enter(self) -> None:
        """Enter new namespaces, network included, as their process 1; see user_namespace."""
        user_namespace.enter()

    def refusal(self) -> str:
        """Return why the kernel refuses a run's namespaces; "" if it allows them."""
        return user_namespace.refused()

    def needs_netem(self, profile: Profile) -> bool:
        """Return True if packets are ever delayed, lost or reordered, which needs netem."""
        extremes = profile.extremes()
        return bool(extremes.delay_ms or extremes.jitter_ms or extremes.loss or extremes.reorder)

    def packets_alone(self, profile: Profile) -> bool:
        """Return True if nodes must send packets of one MTU, as netem counts 64 KB as one."""
        extremes = profile.extremes()
        counted = bool(extremes.loss or extremes.reorder)
        return self.offload == "off" or (self.offload == "auto" and counted)

    def packet_bytes(self, profile: Profile, dilation: float) -> int | None:
        """Return the most bytes per packet of a node: a millisecond of the highest rate.

        None means the kernel's 64 KB. A shaper passes a whole packet and waits afterwards. So an
        exchange ends early by the time of its last packets, which may be all of a short exchange.
        """
        if self.offload == "keep":
            return None
        longest = round(PACKET_S * links.rate_bytes(profile.extremes().highest_mbit / dilation))
        return max(veth.MTU_BYTES, longest) if longest < LARGEST_BYTES else None

    @contextmanager
    def up(self, nodes: int, profile: Profile, dilation: float) -> Iterator[Network]:
        """Context manager: a network shaped to time 0, with this thread's namespace as switch.

        The run must own that namespace. Raise ValueError for settings out of range, NetworkError
        when the kernel refuses.
        """
        self.check(nodes, profile, dilation)
        with ExitStack() as held:
            ip = held.enter_context(IPRoute())
            veth.require_empty(ip)
            held.callback(veth.remove, ip)
            veth.set_up_switch(ip, self._sysctls())
            network = self.lay(ip, held, nodes, profile, dilation)
            held.callback(network.switch.close)
            veth.await_carriers(ip)
            self._verify(network)
            network.set_up()
            yield network

    def _sysctls(self) -> dict[str, str]:
        return tcp_settings.sysctls(self.receive_buffer_bytes, self.send_buffer_bytes)

    def node(
        self, ip: IPRoute, held: ExitStack, number: int, profile: Profile, cable: veth.Cable
    ) -> veth.EmulatedNode:
        """Return one wired node; `held` closes its namespace."""
        made = veth.add_node(ip, number, self._sysctls(), self.congestion_control, cable)
        held.callback(made.namespace.close)
        if self.packets_alone(profile):
            with made.namespace.entered():
                impairments.one_packet_each(veth.INTERFACE)
        return made

    def settings(self, nodes: int, profile: Profile, dilation: float) -> dict[str, Any]:
        """Return all settings of the network, for the record of a run."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return told | {
            "busiest_mbit": self.busiest_mbit(nodes, profile),
            "dilation": dilation,
            "queue_bytes": self.queue(profile),
            "burst_us": links.BURST_US,
            "mtu_bytes": veth.MTU_BYTES,
            "packets_of_one_mtu": self.packets_alone(profile),
            "packet_bytes": self.packet_bytes(profile, dilation),
        }

    def _verify(self, network: Network) -> None:
        """Raise NetworkError unless each node's flows use the configured congestion control."""
        for number in range(network.size):
            with network.entered(number):
                found = tcp_settings.congestion_control_to(veth.SWITCH)
            if found != self.congestion_control:
                wanted = self.congestion_control
                raise links.NetworkError(f"node {number} runs {found}, not {wanted}")
