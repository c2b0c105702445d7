"""A running network of real machines: this machine's two directions, and its peers."""

import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from pyroute2 import IPRoute

from harness.emulation import nic, probe, tcp_settings
from harness.emulation.direction import Direction
from harness.emulation.host_capacity import Ceiling
from harness.emulation.links import Counters, NetworkError
from harness.emulation.network import Network
from harness.emulation.nic import Nic
from harness.emulation.probe import Probe
from harness.emulation.rendezvous import Rendezvous
from harness.records import environment
from harness.records.merge_machines import join, share
from profiles.base import Profile

_CONNECT_S = 20.0


class Machine(NamedTuple):
    """Description of a machine that the other machines need."""

    address: str  # that workers talk to
    addresses: list[str]  # of the interface
    mtu_bytes: int


class HostNetwork(Network):
    """Network of real machines that shape what they send and get; Host.up makes one on each."""

    switch_name = ""

    def __init__(
        self,
        ip: IPRoute,
        rendezvous: Rendezvous,
        known: Sequence[Machine],
        here: Nic,
        directions: Sequence[Direction],
        profile: Profile,
        settings: dict[str, Any],
    ) -> None:
        super().__init__(ip, [], directions, profile, settings)
        self._rendezvous, self._known, self._here = rendezvous, known, here
        self.size = len(known)
        self.local = [rendezvous.machine]
        self.addresses = [machine.address for machine in known]
        self.interface = here.name

    def entered(self, node: int) -> AbstractContextManager[None]:
        """Do nothing: workers run in the namespace of this process."""
        return nullcontext()

    def gather(self, name: str, value: Any) -> list[Any]:
        """Return `value` of every machine, in their order. All machines must call this."""
        return self._rendezvous.gather(name, value)

    def check(self) -> None:
        self._rendezvous.check()

    def collect(self, run_dir: Path) -> None:
        """Send rows and events to machine 0. The other machines keep theirs."""
        found = self._rendezvous.collect("records", share(run_dir))
        if self._rendezvous.machine == 0:
            join(run_dir, found[1:])

    def ceiling(self) -> Ceiling:
        """Return a ceiling without measurement, since interfaces in use are not opened up."""
        needed_mbit = self.options["busiest_mbit"] / self.options["dilation"]
        return Ceiling(needed_mbit, None)

    def probe(self) -> list[Probe]:
        """Measure the payload rate from each machine to the next at time 0, one after the other."""
        return [self._probe(n, (n + 1) % self.size) for n in range(self.size)]

    def _probe(self, sender: int, receiver: int) -> Probe:
        up = self.profile.link(0.0, sender, "up").rate_mbit
        planned_mbit = min(up, self.profile.link(0.0, receiver, "down").rate_mbit)
        dilation = self.options["dilation"]
        mtu_bytes = min(self._known[n].mtu_bytes for n in (sender, receiver))
        share = probe.payload_share(mtu_bytes)

        def measured() -> Probe:
            real_mbit = self._flow(sender, receiver, planned_mbit / dilation)
            name = f"up{sender}-down{receiver}"
            return probe.judge(name, planned_mbit, real_mbit * dilation, share)

        return probe.tried(measured)

    def _flow(self, sender: int, receiver: int, rate_mbit: float) -> float:
        """Measure real Mbit/s of one flow. All machines get the result."""
        here, address = self._rendezvous.machine, self.addresses[receiver]
        measured = None
        with ExitStack() as held:
            listener = None
            if here == receiver:
                listener = held.enter_context(socket.create_server((address, 0)))
            port = self.gather("port of a probe", listener and listener.getsockname()[1])[receiver]
            if listener:
                end = held.enter_context(_accepted(listener, self._known[sender].addresses))
                probe.make_ready(end, None)
                measured = probe.received_mbit(end, rate_mbit, self.options["probe_s"])
                end.shutdown(socket.SHUT_RDWR)
            elif here == sender:
                end = held.enter_context(socket.socket())
                window = probe.window_bytes(rate_mbit, self.options["queue_bytes"])
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, window)
                end.settimeout(_CONNECT_S)
                end.connect((address, port))
                probe.make_ready(None, end)
                probe.send_until(end, lambda: False)
        return self.gather("rate of a probe", measured)[receiver]

    def counters(self, ip: IPRoute | None = None) -> dict[str, Counters]:
        """Return counters of this machine's directions. NetworkError if the shaping is gone."""
        try:
            return super().counters(ip)
        except NetworkError as error:
            raise NetworkError(
                f"{self.interface} is no longer shaped: network.time_limit_s = "
                f"{self.options['time_limit_s']} is over, or somebody removed it"
            ) from error

    def bytes(self) -> dict[str, int]:
        """Return the bytes of Ethernet frames that passed this machine's shapers."""
        return {name: counted.bytes for name, counted in self.counters().items()}

    def describe(self) -> dict[str, Any]:
        """Return settings and kernel read-back of every machine, for the record of a run."""
        here = {
            "machine": self._known[self._rendezvous.machine]._asdict(),
            "interface": self.interface,
            "qdiscs": nic.qdiscs(self._ip, self._here.index),
            "offloads": tcp_settings.read_offloads(self.interface),
            "sysctls": tcp_settings.read_sysctls(),
            "links": {d.name: d.describe(self._ip) for d in self.directions},  # real
            "environment": environment.describe(),
        }
        machines = self.gather("description", here)
        links = {name: held for machine in machines for name, held in machine["links"].items()}
        return self.options | {"links": links, "machines": machines}


def _accepted(listener: socket.socket, sender: Sequence[str]) -> socket.socket:
    """Return the connection from an address of `sender`, and close others. TimeoutError."""
    deadline = time.monotonic() + _CONNECT_S
    while True:
        listener.settimeout(max(0.001, deadline - time.monotonic()))
        end, (address, _) = listener.accept()
        if address in sender:
            return end
        end.close()
