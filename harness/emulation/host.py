"""Host: the nodes are real machines, and each shapes its own interface to and from the others."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from harness.emulation import (
    ledger,
    links,
    nic,
    placement,
    tcp_settings,
    token,
    user_namespace,
    watchdog,
)
from harness.emulation.direction import Direction, ShapingPoint
from harness.emulation.links import NetworkError
from harness.emulation.machines import HostNetwork, Machine
from harness.emulation.namespaces import Namespace
from harness.emulation.nic import Nic
from harness.emulation.nic_lease import Loan, lease
from harness.emulation.packets import BURST_US
from harness.emulation.probe import Ends
from harness.emulation.rendezvous import Rendezvous
from harness.emulation.shaping import Shaping
from profiles.base import WAYS, Profile, Way
from profiles.limits import check_between, check_whole

RUNNER = 0  # standard input of a supervisor: readable when the run is to end
_CAPABILITIES = {12: "CAP_NET_ADMIN", 21: "CAP_SYS_ADMIN"}


@dataclass(frozen=True, kw_only=True)
class Host(Shaping):
    """Real machines, whose interfaces are shaped during a run.

    Only rates are shaped, and only between the machines. With `master` null, the launcher's first
    machine leads. With `interface` null, packets to it decide the interface.
    """

    interface: str | None = None
    machine: int | None = None
    machines: int | None = None
    master: str | None = None
    port: int = 29400
    join_s: float = 300.0
    congestion_control: str | None = None
    time_limit_s: float = 14_400.0
    ledger: str = "/var/lib/gradnet"
    token: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(2, machines=self.machines)
        check_whole(0, self.machines_of_run() - 1, machine=self.machine)
        check_whole(1, 65_535, port=self.port)
        check_between(1, 86_400 * 30, join_s=self.join_s, time_limit_s=self.time_limit_s)
        master = placement.master() if self.master is None else nic.ipv4("master", str(self.master))
        object.__setattr__(self, "master", master)
        if not isinstance(self.interface, str | None):
            raise ValueError(f"interface must be a name such as eth1, got {self.interface!r}")
        object.__setattr__(self, "interface", self.interface or _interface_to(master))

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        """Check the settings before the machines meet.

        Raise ValueError for a bad setting or profile, or without root or a valid token. Raise
        NetworkError if the interface is missing, down or a loopback.
        """
        if nodes != self.machines:
            raise ValueError(
                f"machines must be workers / workers_per_node = {nodes}, got {self.machines}"
            )
        if not dilation > 0:
            raise ValueError(f"emulation.dilation must be > 0, got {dilation}")
        extremes = profile.extremes()
        for rate_mbit in (extremes.lowest_mbit, extremes.highest_mbit):
            links.rate_bytes(rate_mbit / dilation)
        for key in ("delay_ms", "jitter_ms", "loss", "reorder", "flows"):
            if asked := getattr(extremes, key):
                raise ValueError(
                    f"host shapes rates only, this profile asks for {key} up to {asked}; "
                    "use network=netns or another profile"
                )
        _require_capabilities()
        token.of_run(self.token)
        with IPRoute() as ip:
            nic.find(ip, str(self.interface))

    def machines_of_run(self) -> int:
        assert self.machines is not None
        return self.machines

    def place(self, run_id: str) -> str:
        """Return the run's folder. Only machine 0 has results; other machines keep no run."""
        return run_id if self.machine == 0 else f".machines/{run_id}-{self.machine}"

    def enter(self) -> None:
        """Return as process 1 of the run's namespaces, in the machine's network; leave a guard."""
        watchdog.leave_behind(self._ledger(), self.time_limit_s)
        user_namespace.enter(own_network=False)

    @contextmanager
    def up(self, nodes: int, profile: Profile, dilation: float) -> Iterator[HostNetwork]:
        """Meet the other machines, and shape this one to the conditions of time 0.

        Raise RunEnded if the run ends elsewhere, NetworkError if the kernel or a machine refuses.
        """
        self.check(nodes, profile, dilation)
        assert self.machine is not None and self.machines is not None and self.master is not None
        rendezvous = Rendezvous(self.machine, self.machines, token.of_run(self.token), stop=RUNNER)
        failure = None
        try:
            rendezvous.join(self.master, self.port, self.join_s)
            with ExitStack() as held:
                ip = held.enter_context(IPRoute())
                yield self._lay(ip, held, rendezvous, profile, dilation)
        except BaseException as error:
            failure = error
            raise
        finally:
            rendezvous.leave(failure)

    def _lay(
        self,
        ip: IPRoute,
        held: ExitStack,
        rendezvous: Rendezvous,
        profile: Profile,
        dilation: float,
    ) -> HostNetwork:
        interface = nic.find(ip, str(self.interface))
        described = rendezvous.gather("machines", self._describe(ip, interface)._asdict())
        machines = [Machine(**each) for each in described]
        others = [machine for n, machine in enumerate(machines) if n != self.machine]
        peers = [address for machine in others for address in machine.addresses]
        running = self._congestion_control(others[0].address)
        leased, ifb = held.enter_context(lease(ip, interface.name, peers, self.port, self._loan()))
        own = Namespace.current()
        held.callback(own.close)
        network = HostNetwork(
            ip,
            rendezvous,
            machines,
            leased,
            self._directions({"up": leased.index, "down": ifb}, own, profile, dilation),
            profile,
            self._settings(profile, dilation) | {"congestion_control": running},
        )
        network.set_up()
        return network

    def _directions(
        self, indices: dict[Way, int], own: Namespace, profile: Profile, dilation: float
    ) -> list[Direction]:
        assert self.machine is not None
        ends = Ends(own, own, str(self.master))  # unused: its flows end on another machine
        return [
            Direction(
                f"{way}{self.machine}",
                ShapingPoint(indices[way], root=nic.HANDLE),
                partial(profile.link, node=self.machine, way=way),
                dilation,
                self.queue(profile),
                ends,
            )
            for way in WAYS
        ]

    def _describe(self, ip: IPRoute, found: Nic) -> Machine:
        addresses = nic.addresses(ip, found)
        first = self.master if self.master in addresses else addresses[0]
        return Machine(str(first), addresses, nic.mtu_bytes(ip, found))

    def _congestion_control(self, peer: str) -> str:
        """Return the congestion control of flows to `peer`; NetworkError if it is another."""
        running = tcp_settings.congestion_control_to(peer)
        if self.congestion_control not in (None, running):
            wanted = self.congestion_control
            raise NetworkError(
                f"this machine runs {running}, not network.congestion_control={wanted}; run "
                f"`sysctl -w net.ipv4.tcp_congestion_control={wanted}` on every machine"
            )
        return running

    def _settings(self, profile: Profile, dilation: float) -> dict[str, Any]:
        return asdict(self) | {
            "busiest_mbit": self.machines_of_run() * profile.extremes().highest_mbit,
            "dilation": dilation,
            "queue_bytes": self.queue(profile),
            "burst_us": BURST_US,
            "uplink": "sender's own stack",
        }

    def _ledger(self) -> Path:
        return ledger.path_of(Path(self.ledger).absolute(), str(self.interface))

    def _loan(self) -> Loan:
        run = f"machine {self.machine} of the run that {self.master} leads"
        return Loan(self._ledger().parent, run, os.environ[watchdog.OWNER], self.time_limit_s)


def _interface_to(master: str) -> str:
    """Return the interface of the route to machine 0. Raise ValueError if there is none."""
    with IPRoute() as ip:
        try:
            return nic.towards(ip, master)
        except NetworkError as error:
            raise ValueError(f"interface must be a name such as eth1, got null: {error}") from error


def _require_capabilities() -> None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
    missing = [name for number, name in _CAPABILITIES.items() if not held >> number & 1]
    if missing:
        raise ValueError(
            f"host needs root on every machine ({' and '.join(missing)} missing); "
            "use sudo, or network=netns, which needs none"
        )
