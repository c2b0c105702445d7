"""A network that is up: enter its nodes, prove its links, read it back, play a profile on it."""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

from pyroute2 import IPRoute

from harness.network import links, wiring
from harness.network.namespaces import Namespace
from harness.network.player import Clock, Player
from harness.network.probe import Path, Probe, groups, judge, measure
from harness.records import Events, Table
from profiles.base import Link, Profile

_TOGETHER_MBIT = 4000.0  # real rate that flows of one probe may sum to, on two cores


class Network:
    """Made by Star.up, in the switch's namespace; a real rate is the emulated one / dilation."""

    interface = wiring.INTERFACE

    def __init__(
        self,
        ip: IPRoute,
        nodes: Sequence[wiring.Node],
        profile: Profile,
        dilation: float,
        settings: dict,
    ) -> None:
        self._ip, self.nodes, self._settings = ip, nodes, settings
        self.profile, self.dilation = profile, dilation
        self.size = len(nodes)
        self.addresses = [node.address for node in nodes]
        self.switch = Namespace.current()
        self._lock = threading.Lock()  # of what is intended, against the player
        self._indices: dict[str, int] = {}
        self._intended: dict[str, int] = {}  # real bytes/s
        self.applied_mbit: dict[str, float] = {}  # emulated, as read back

    def shape(self) -> None:
        """Add the shapers, at the conditions of time 0."""
        for number, node in enumerate(self.nodes):
            rate_mbit = self.planned(0.0, number).rate_mbit / self.dilation
            for name, index in ((f"up{number}", node.uplink), (f"down{number}", node.port)):
                queue = self._settings["queue_bytes"]
                links.shape(self._ip, index, name, rate_mbit, queue)
                self._indices[name] = index
                self._intended[name] = links.rate_bytes(rate_mbit)
                read_mbit, _ = links.read_rate(self._ip, index, name)
                self.applied_mbit[name] = read_mbit * self.dilation

    def entered(self, node: int) -> AbstractContextManager[None]:
        """Put the calling thread, and what it opens and forks, into `node`."""
        return self.nodes[node].namespace.entered()

    def planned(self, time_s: float, node: int) -> Link:
        """The profile's conditions; ValueError when they need more than a rate."""
        link = self.profile.link(time_s, node, "up")
        if link.delay_ms or link.jitter_ms or link.loss:
            raise ValueError(
                f"network netns shapes the rate only; {self.profile} asks for delay_ms="
                f"{link.delay_ms} jitter_ms={link.jitter_ms} loss={link.loss} at {time_s} s"
            )
        return link

    def apply(self, ip: IPRoute, time_s: float, node: int) -> bool:
        """Give `node` its conditions of `time_s` and read them back; False when it had them."""
        rate_mbit = self.planned(time_s, node).rate_mbit / self.dilation
        rate = links.rate_bytes(rate_mbit)
        changed = False
        for name in (f"up{node}", f"down{node}"):
            if self._intended[name] == rate:
                continue
            with self._lock:
                links.change_rate(ip, self._indices[name], name, rate_mbit)
                self._intended[name] = rate
                read_mbit, _ = links.read_rate(ip, self._indices[name], name)
                self.applied_mbit[name] = read_mbit * self.dilation
            changed = True
        return changed

    def probe(self) -> list[Probe]:
        """Each link's payload rate at the conditions of time 0; all up, then all down."""
        for number in range(self.size):
            self.apply(self._ip, 0.0, number)
        rates = [self.planned(0.0, n).rate_mbit for n in range(self.size)]
        nodes = [node.namespace for node in self.nodes]
        ups = [
            Path(node, self.switch, wiring.SWITCH, rate / self.dilation)
            for node, rate in zip(nodes, rates, strict=True)
        ]
        downs = [
            Path(self.switch, node, address, rate / self.dilation)
            for node, address, rate in zip(nodes, self.addresses, rates, strict=True)
        ]
        measured = [self._measure(paths) for paths in (ups, downs)]
        return [
            judge(f"{kind}{n}", rates[n], measured[k][n] * self.dilation)
            for n in range(self.size)
            for k, kind in enumerate(("up", "down"))
        ]

    def _measure(self, paths: Sequence[Path]) -> list[float]:
        """As many at once as the machine can carry; a path that missed is measured again alone."""
        seconds, queue = self._settings["probe_s"], self._settings["queue_bytes"]
        measured = [0.0] * len(paths)
        for group in groups(paths, _TOGETHER_MBIT):
            rates = measure([paths[n] for n in group], seconds, queue)
            for number, rate_mbit in zip(group, rates, strict=True):
                measured[number] = rate_mbit
        for number, path in enumerate(paths):
            if not judge("", path.rate_mbit, measured[number]).ok:
                measured[number] = measure([path], seconds, queue)[0]
        return measured

    def verify(self) -> list[str]:
        """What differs between the kernel's classes and queues and what was intended."""
        problems = []
        for name, index in self._indices.items():
            with self._lock:
                rate_mbit = self._intended[name] / 125_000
                intent = links.Shape(rate_mbit, links.BURST_US, self._settings["queue_bytes"])
                try:
                    held = links.read_shape(self._ip, index, name)
                except links.NetworkError as error:
                    problems.append(str(error))
                    continue
            if held != intent:
                problems.append(f"{name} is {held}, intended {intent}")
        return problems

    def bytes(self) -> dict[str, int]:
        """Bytes of Ethernet frames that passed each link's shaper so far."""
        return {name: counted.bytes for name, counted in self.counters().items()}

    def counters(self, ip: IPRoute | None = None) -> dict[str, links.Counters]:
        """Bytes, backlog and drops of every link, from one dump; a thread brings its own `ip`."""
        found = links.counters(ip or self._ip)
        return {name: found[index] for name, index in self._indices.items()}

    def describe(self) -> dict:
        """Settings and kernel read-back, for the record of a run."""
        shapes = {
            name: links.read_shape(self._ip, index, name)._asdict() | {"kind": "htb + bfifo"}
            for name, index in self._indices.items()
        }
        with self.nodes[0].namespace.entered(), IPRoute() as inside:
            node = wiring.describe(inside)
        return self._settings | {
            "dilation": self.dilation,
            "links": shapes,  # real rates
            "switch": wiring.describe(self._ip),
            "node0": node,  # all nodes are made alike
        }

    def play(self, clock: Clock, links_table: Table, events: Events) -> Player:
        """Follow the profile from now on, in a thread, until the Player is stopped."""
        periods = self._settings["update_s"], self._settings["sample_s"]
        return Player(self, clock, links_table, events, *periods)
