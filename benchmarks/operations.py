"""What bringing a network up asks of the system: netlink requests sent, processes started."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyroute2.netlink.core import AsyncCoreSocket

from harness.emulation import batch

# What mininet 2.3 publishes for a host and its link with TCLink, rate and queue length given:
# startShell in mininet/node.py; makeIntfPair, setIP, Intf.config and TCIntf.config with its bwCmds
# and delayCmds in mininet/link.py. Each is one process. What it runs to look things up, and the
# commands of its switch, are not counted.
_MININET_LINK = (
    "mnexec -cdn bash",  # the host's namespace and shell
    "ip link add name HOST-eth0 type veth peer name SWITCH-ethN netns PID",
    "ifconfig HOST-eth0 ADDRESS up",
)
_MININET_SIDE = ("ifconfig INTF up", "ethtool -K INTF gro off")
_MININET_SHAPING = (  # of a side; again for every change of its rate
    "tc qdisc del dev INTF root",
    "tc qdisc add dev INTF root handle 5:0 htb default 1",
    "tc class add dev INTF parent 5:0 classid 5:1 htb rate RATE burst 15k",
    "tc qdisc add dev INTF parent 5:1 handle 10: netem limit PACKETS",
)
_STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")  # audit events


class Operations(NamedTuple):
    requests: int  # netlink messages
    calls: int  # of the system, that sent them
    processes: int


class Count:
    """Of what this process has asked for since counting began."""

    def __init__(self) -> None:
        self.requests = self.calls = self.processes = 0

    def all(self) -> Operations:
        return Operations(self.requests, self.calls, self.processes)


@contextmanager
def counted() -> Iterator[Count]:
    """Count every netlink message and process of this process from here to the end."""
    count, counting, send = Count(), [True], AsyncCoreSocket.send

    def send_and_count(sock: AsyncCoreSocket, data: bytes, flags: int = 0) -> Any:
        count.requests += sum(1 for _ in batch.messages(bytes(data)))
        count.calls += 1
        return send(sock, data, flags)

    def hear(event: str, arguments: tuple) -> None:
        count.processes += counting[0] and event in _STARTS

    sys.addaudithook(hear)  # for good, so it has to be told when to stop
    AsyncCoreSocket.send = send_and_count
    try:
        yield count
    finally:
        AsyncCoreSocket.send = send
        counting[0] = False


def mininet_processes(links: int) -> int:
    """Started for a star of so many links, both sides shaped."""
    return links * (len(_MININET_LINK) + 2 * len(_MININET_SIDE + _MININET_SHAPING))


def mininet_change_processes(directions: int) -> int:
    """Started to give so many directions new rates: qdiscs, and what they hold, are replaced."""
    return directions * len(_MININET_SHAPING)
