"""Star: nodes are namespaces of this machine, joined by a switch, each up- and downlink shaped."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute

from harness.network import links, wiring
from harness.network.network import Network
from profiles.base import Profile

FEWEST_QUEUE_BYTES, MOST_QUEUE_BYTES = 1 << 18, 1 << 26


@dataclass(frozen=True)
class Star:
    """Real TCP over real shaped links; everything is owned by the calling process's namespaces."""

    queue_ms: float = 50.0  # of the profile's highest rate; constant bytes at lower rates
    congestion_control: str = "cubic"  # any that the kernel offers
    update_s: float = 0.1  # real seconds between looks at the profile
    sample_s: float = 0.25  # real seconds between rows of links.csv
    probe_s: float = 0.5  # real seconds each link is measured before step 0

    def __post_init__(self) -> None:
        for name in ("queue_ms", "update_s", "sample_s", "probe_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"network.{name} must be > 0, got {getattr(self, name)}")

    def queue_bytes(self, profile: Profile) -> int:
        """Bytes each direction buffers: queue_ms at the highest rate, in [256 KiB, 64 MiB].

        Fixed in bytes like a switch's buffer, so it means more ms when the rate drops, and nothing
        queued is lost by a change. Emulated time and rate, so dilation leaves the bytes alone.
        """
        wanted = profile.extremes().highest_mbit * 125 * self.queue_ms
        return round(min(MOST_QUEUE_BYTES, max(FEWEST_QUEUE_BYTES, wanted)))

    @contextmanager
    def up(self, nodes: int, profile: Profile, dilation: float) -> Iterator[Network]:
        """`nodes` links shaped to the conditions of time 0; the switch is this thread's namespace.

        It must be the run's own. ValueError for settings that cannot be met,
        NetworkError when the kernel refuses.
        """
        self._check(nodes, profile, dilation)
        with ExitStack() as held:
            ip = held.enter_context(IPRoute())
            wiring.require_empty(ip)
            held.callback(wiring.remove, ip)
            wiring.set_up_switch(ip)
            wired = []
            for number in range(nodes):
                wired.append(wiring.add_node(ip, number, self.congestion_control))
                held.callback(wired[-1].namespace.close)
            settings = self._settings(profile) | {"congestion_control": self._verified(wired)}
            network = Network(ip, wired, profile, dilation, settings)
            held.callback(network.switch.close)
            network.shape()
            yield network

    def _check(self, nodes: int, profile: Profile, dilation: float) -> None:
        if not 1 <= nodes <= wiring.MOST_NODES:
            raise ValueError(f"nodes must be in [1, {wiring.MOST_NODES}], got {nodes}")
        if not dilation > 0:
            raise ValueError(f"emulation.dilation must be > 0, got {dilation}")
        for rate_mbit in profile.extremes()[:2]:
            links.rate_bytes(rate_mbit / dilation)
        wiring.require_known(self.congestion_control)

    def _settings(self, profile: Profile) -> dict[str, Any]:
        return {
            "queue_ms": self.queue_ms,
            "queue_bytes": self.queue_bytes(profile),
            "burst_us": links.BURST_US,
            "mtu_bytes": wiring.MTU_BYTES,
            "update_s": self.update_s,
            "sample_s": self.sample_s,
            "probe_s": self.probe_s,
        }

    def _verified(self, nodes: list[wiring.Node]) -> str:
        """The congestion control that a flow from every node really runs."""
        for number, node in enumerate(nodes):
            with node.namespace.entered():
                found = wiring.read_congestion_control()
            if found != self.congestion_control:
                wanted = self.congestion_control
                raise links.NetworkError(f"node {number} runs {found}, not {wanted}")
        return self.congestion_control
