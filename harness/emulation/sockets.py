"""TCP sockets of a namespace, read by the kernel's sock_diag without disturbing them."""

import socket
from typing import Any, NamedTuple

from pyroute2 import DiagSocket

from harness.emulation.links import attempt
from harness.emulation.namespaces import Namespace

_TCP_INFO = 1 << 1  # asks for the counters of each connection
_LISTEN, _NOT_OPEN = (
    1 << 10,
    1 << 6 | 1 << 7 | 1 << 12,
)  # by TCP state; not open: half of one, or none
_ALL = 0x1FFF


class Connection(NamedTuple):
    """A TCP connection at the end that opened it."""

    local_port: int
    port: int  # of the other end
    sent_bytes: int  # payload handed to the link, each byte once


class Sockets:
    """Reader of the TCP sockets of a namespace by sock_diag, for one thread."""

    def __init__(self, namespace: Namespace) -> None:
        with namespace.entered():
            self._diag = DiagSocket()

    def listening(self) -> set[int]:
        """Return the ports with a listener."""
        return {found["idiag_sport"] for found in self._dump(_LISTEN)}

    def connections(self) -> list[Connection]:
        """Return all connections that are up, or have data left to deliver."""
        found = []
        for reply in self._dump(_ALL & ~_LISTEN & ~_NOT_OPEN):
            info = reply.get_attr("INET_DIAG_INFO")
            if info is not None:
                sent = info["tcpi_bytes_sent"] - info["tcpi_bytes_retrans"]
                found.append(Connection(reply["idiag_sport"], reply["idiag_dport"], sent))
        return found

    def close(self) -> None:
        self._diag.close()

    def _dump(self, states: int) -> Any:
        with attempt("read the TCP sockets of a node through sock_diag (kernel option INET_DIAG)"):
            return list(self._diag.get_sock_stats(socket.AF_INET, states, extensions=_TCP_INFO))
