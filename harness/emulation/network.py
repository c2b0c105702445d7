"""A running network: enter its nodes, prove its links, and read it back."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from harness.emulation import links, veth
from harness.emulation.direction import Direction
from harness.emulation.host_capacity import Ceiling, capacity_mbit
from harness.emulation.iperf import CompetingPath
from harness.emulation.monitor import Monitor
from harness.emulation.namespaces import Namespace
from harness.emulation.probe import Ends, Probe, ProbePath, judge, measure_in_turn
from harness.emulation.rtt_probe import RoundTrip, RttPath, round_trips_ms
from profiles.base import WAYS, Profile

MOST_AT_ONCE = 16  # flows of the ceiling's measurement


class Network:
    """A running network, made by a topology's `up` in the switch's namespace.

    `ip` changes its interfaces. `hosts` are ends of competing flows that are no nodes.
    """

    interface = veth.INTERFACE
    switch_name = "the switch"  # "" where it is a namespace that other programs use, too

    def __init__(
        self,
        ip: IPRoute,
        nodes: Sequence[veth.EmulatedNode],
        directions: Sequence[Direction],
        profile: Profile,
        settings: dict[str, Any],
        tours: Sequence[RttPath] = (),
        pairs: Sequence[CompetingPath] = (),
        hosts: Sequence[veth.EmulatedNode] = (),
    ) -> None:
        self._ip, self.nodes, self.options = ip, nodes, settings
        self.directions, self._tours = directions, tours
        self.profile, self.pairs = profile, pairs
        self.size = len(nodes)
        self.local = list(range(self.size))  # nodes whose processes this machine runs
        self.addresses = [node.address for node in nodes]
        self.switch = Namespace.current()
        self._ends = {f"node {n}": node.namespace for n, node in enumerate(nodes)}
        self._ends |= {f"host {n}": host.namespace for n, host in enumerate(hosts)}
        self._as_set_up: Mapping[str, Any] = {}

    def entered(self, node: int) -> AbstractContextManager[None]:
        """Context manager under which this thread, its new sockets and its forks are in `node`."""
        return self.nodes[node].namespace.entered()

    def gather(self, name: str, value: Any) -> list[Any]:
        """Return `value` of every machine of the run: only this one."""
        return [value]

    def check(self) -> None:
        """Raise if the run has ended on another machine. There is no other machine."""

    def collect(self, run_dir: Path) -> None:
        """Do nothing: all records are already in the first machine's `run_dir`."""

    def set_up(self) -> None:
        """Add every shaper and netem, with the conditions of time 0."""
        for direction in self.directions:
            direction.set_up(self._ip)
        self._as_set_up = self._described()

    def ceiling(self) -> Ceiling:
        """Measure the Mbit/s that this machine carries with open shapers. Add what links need."""
        for direction in self.directions:
            direction.open(self._ip)
        size = min(self.size, MOST_AT_ONCE)
        ring = [(self.nodes[n], self.nodes[(n + 1) % self.size]) for n in range(size)]
        ends = [Ends(a.namespace, b.namespace, b.address) for a, b in ring]
        carried_mbit = capacity_mbit(ends, self.options["probe_s"]) if self.size > 1 else None
        needed_mbit = self.options["busiest_mbit"] / self.options["dilation"]
        self._restore()
        return Ceiling(needed_mbit, carried_mbit)

    def probe(self) -> list[Probe]:
        """Measure each direction's payload rate at time 0 without delay: all up, then all down."""
        for direction in self.directions:
            direction.clear(self._ip)
        found: dict[str, Probe] = {}
        for way in WAYS:
            together = [d for d in self.directions if way in d.name]
            flows = [ProbePath(*d.ends, d.real(d.intended).rate_mbit) for d in together]
            queue_bytes = min(d.queue_bytes for d in together)
            probes = measure_in_turn(flows, self.options["probe_s"], queue_bytes)
            found |= {d.name: each for d, each in zip(together, probes, strict=True)}
        self._restore()
        return [_emulated(d, found[d.name]) for d in self.directions]

    def round_trips(self) -> list[RoundTrip]:
        """Measure round trips of a small packet on empty links at time 0, per delayed path."""
        delayed = [tour for tour in self._tours if tour.planned_ms() > 0]
        measured = round_trips_ms([tour.ends for tour in delayed])
        return [tour.judge(ms) for tour, ms in zip(delayed, measured, strict=True)]

    def _restore(self) -> None:
        for direction in self.directions:
            direction.apply(self._ip, direction.conditions(0.0))

    def verify(self) -> list[str]:
        """List differences between the kernel's state and our setup, one line each.

        It covers all shapers, and qdiscs, interfaces and sysctls of switch and nodes.
        """
        problems = [problem for d in self.directions for problem in d.problems(self._ip)]
        for where, now in self._described().items():
            problems += veth.differences(where, self._as_set_up[where], now)
        return problems

    def _described(self) -> dict[str, Any]:
        """Return interfaces and sysctls of every namespace of this network, by its name."""
        if not self.switch_name:
            return {}
        namespaces = {self.switch_name: veth.describe(self._ip)}
        for where, namespace in self._ends.items():
            with namespace.entered(), IPRoute() as inside:
                namespaces[where] = veth.describe(inside)
        return namespaces

    @contextmanager
    def watched(self, ip: IPRoute) -> Iterator[list[Monitor]]:
        """Context manager: yield monitors of changes by others in switch, nodes and hosts."""
        places = [(direction.name, direction.place) for direction in self.directions]
        links = {place.impairer: name for name, place in places if place.impairer is not None}
        links |= {place.shaper: name for name, place in places}
        self.counters(ip)  # a socket has a port from its first request on
        with ExitStack() as held:
            monitors = [held.enter_context(Monitor(self.switch_name, links, ip))]
            for where, namespace in self._ends.items():
                with namespace.entered():
                    monitors.append(held.enter_context(Monitor(where)))
            yield monitors

    def bytes(self) -> dict[str, int]:
        """Return bytes of Ethernet frames so far: of each shaper, and of each node's uplink."""
        passed = {name: counted.bytes for name, counted in self.counters().items()}
        if missing := [n for n in range(self.size) if f"up{n}" not in passed]:
            received = links.received_bytes(self._ip)
            passed |= {f"up{n}": received[self.nodes[n].port] for n in missing}
        return passed

    def counters(self, ip: IPRoute | None = None) -> dict[str, links.Counters]:
        """Return bytes, backlog and drops of every direction's shaper, by name, from one dump.

        Other threads than the first pass their own `ip`. Raise NetworkError if a shaper is gone.
        """
        found = links.counters(ip or self._ip)
        for gone in (d.name for d in self.directions if d.place.shaper not in found):
            raise links.NetworkError(f"{gone} is no longer shaped: somebody removed its queue")
        return {d.name: found[d.place.shaper] for d in self.directions}

    def describe(self) -> dict[str, Any]:
        """Return settings and kernel read-back, for the record of a run."""
        return self.options | {
            "links": {d.name: d.describe(self._ip) for d in self.directions},  # real
            "switch": self._as_set_up[self.switch_name],
            "node0": self._as_set_up["node 0"],  # all nodes are made alike
        }


def _emulated(direction: Direction, real: Probe) -> Probe:
    """Convert a probe's result of `direction` from real to emulated Mbit/s, and judge it."""
    measured_mbit = real.measured_mbit * direction.dilation
    probe = judge(direction.name, direction.intended.rate_mbit, measured_mbit)
    return probe._replace(tries=real.tries)
