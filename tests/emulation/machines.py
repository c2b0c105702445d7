"""Namespaces that stand for the machines of a job, and a run that borrows their interface."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pyroute2 import IPRoute

from harness.emulation import links, nic, veth, watchdog
from harness.emulation.namespaces import Namespace
from harness.emulation.nic_lease import Loan, lease
from tests.launching import until

INTERFACE = "eth1"
QUEUE_BYTES = 1 << 20
CONTROL_PORT = 29400


def address(machine: int, net: int = 0) -> str:
    """Of `machine` in the job's net, or in another (`net`=1) over the same cable."""
    return f"10.0.{net}.{machine + 1}"


@contextmanager
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    """Two machines, joined by a cable."""
    machines = (Namespace.create(), Namespace.create())
    with machines[0].entered(), IPRoute() as ip:
        there = {"ifname": INTERFACE, "net_ns_fd": machines[1].descriptor}
        ip.link("add", kind="veth", ifname=INTERFACE, peer=there)
    for number, machine in enumerate(machines):
        with machine.entered(), IPRoute() as ip:
            index = ip.link_lookup(ifname=INTERFACE)[0]
            for net in (0, 1):
                ip.addr("add", index=index, address=address(number, net), prefixlen=24)
            ip.link("set", index=1, state="up")
            ip.link("set", index=index, state="up")
    with machines[0].entered(), IPRoute() as ip:
        veth.await_carriers(ip)
    try:
        yield machines
    finally:
        for machine in machines:
            machine.close()


def tc(*arguments: str) -> str:
    """What `tc` prints in the calling thread's namespace."""
    return subprocess.run(["tc", *arguments], capture_output=True, text=True, check=True).stdout


def state() -> str:
    """Everything that shaping may change in the calling thread's namespace."""
    names = " ".join(name for _, name in socket.if_nameindex())
    filters = [tc("filter", "show", "dev", INTERFACE, *way) for way in ((), ("ingress",))]
    whole = "\n".join([tc("qdisc", "show"), names, *filters])
    return re.sub(r" direct_packets_stat \d+", "", whole)


def run(ledger: Path, limit_s: float = 60.0) -> subprocess.Popen[str]:
    """Start a guarded run that borrows INTERFACE at 50 Mbit/s; return once it is shaped."""
    command = [sys.executable, "-m", __name__, str(ledger), str(limit_s)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stderr
    assert process.stdout.readline() == "shaped\n", process.stderr.read()
    return process


def guards() -> list[int]:
    """Ids of the watchdogs that run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().startswith(b"harness: watchdog of"):
                found.append(int(entry.parent.name))
        except OSError:
            continue  # it has just ended
    return found


def guard() -> int:
    """Id of the watchdog, which may have begun and not yet be called one."""
    until(guards, "a watchdog runs", 20)
    return guards()[0]


def shape(ip: IPRoute, found: nic.Nic, ifb: int, up_mbit: float, down_mbit: float) -> None:
    links.add_class(ip, found.index, "up", up_mbit, QUEUE_BYTES, nic.HANDLE)
    links.add_class(ip, ifb, "down", down_mbit, QUEUE_BYTES, nic.HANDLE)


def _borrow(ledger: Path, limit_s: float) -> None:
    loan = Loan(ledger.parent, "test", os.environ[watchdog.OWNER], limit_s)
    with IPRoute() as ip:
        with lease(ip, INTERFACE, [address(1)], CONTROL_PORT, loan) as (found, ifb):
            shape(ip, found, ifb, 50.0, 50.0)
            print("shaped", flush=True)
            sys.stdin.read()


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell ignores the first in the background
        signal.signal(number, _interrupt)
    _ledger, _limit_s = Path(sys.argv[1]), float(sys.argv[2])
    watchdog.leave_behind(_ledger, _limit_s)
    _borrow(_ledger, _limit_s)
