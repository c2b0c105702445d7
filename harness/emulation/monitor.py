"""What the kernel tells of shapers and links that somebody else changes while a run goes on.

A reading at every sample misses what was put back before it; the kernel's own notifications do not:
each names the socket that asked for the change, so ours are told from all others. That a link lost
its other end is told some time later, and then how it is by now: it is counted, too.
"""

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from pyroute2 import IPRoute

from harness.emulation import batch

_LINK_GROUP, _TC_GROUP = 0x1, 0x8  # RTMGRP_LINK, RTMGRP_TC
_NEW_LINK, _DEL_LINK = 16, 17
_TC = {  # RTM_NEW... and RTM_DEL... of what shapes
    36: "a qdisc was set", 37: "a qdisc was removed", 40: "its class was changed",
    41: "a class was removed", 44: "a filter was set", 45: "a filter was removed",
}  # fmt: skip
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length with this, type, flags, number, port
_ABOUT = struct.Struct("=Bxxxi")  # of ifinfomsg and tcmsg: family, interface
_FLAGS_AT, _ATTRIBUTES_AT = 8, 16  # of ifinfomsg
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length with this, type
_TIMES_DOWN, _TIMES_DOWN_NAME = 48, "IFLA_CARRIER_DOWN_COUNT"
_UP = 0x1 | 0x10000  # IFF_UP | IFF_LOWER_UP
_READ_BYTES = 1 << 16
_ROOM_BYTES = 4 << 20  # of notifications, our own included, between two looks


class OutsideChange(NamedTuple):
    link: str
    what: str


class Monitor:
    """Listens for changes of links and shapers in the namespace it is made in, until closed.

    `links` names what is at each interface index; `ip` shapes, and has asked for something before.
    """

    def __init__(self, links: Mapping[int, str], ip: IPRoute) -> None:
        self._links, self._own = links, batch.port(ip)
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM_BYTES)
        self._socket.bind((0, _LINK_GROUP | _TC_GROUP))
        self._times_down = {
            link["index"]: link.get_attr(_TIMES_DOWN_NAME) or 0 for link in ip.get_links()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def changes(self) -> list[OutsideChange]:
        """Since the last call, each once: others' changes of what shapes, links that were down."""
        found: dict[OutsideChange, None] = {}
        with suppress(BlockingIOError):  # no more
            while True:
                found |= dict.fromkeys(self._told(self._received()))
        return list(found)

    def _received(self) -> bytes:
        """Notifications that wait; some may be lost, but samples still show the change."""
        try:
            return self._socket.recv(_READ_BYTES)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return b""

    def _told(self, data: bytes) -> Iterator[OutsideChange]:
        start = 0
        while start + _HEADER.size <= len(data):
            length, kind, _, _, port = _HEADER.unpack_from(data, start)
            body = data[start + _HEADER.size : start + length]
            start += (length + 3) & ~3
            if kind in _TC or kind in (_NEW_LINK, _DEL_LINK):
                index = _ABOUT.unpack_from(body)[1]
                name = self._links.get(index)
                if name and (what := self._what(kind, port, index, body)):
                    yield OutsideChange(name, what)

    def _what(self, kind: int, port: int, index: int, body: bytes) -> str:
        """Name a change; "" for one that does not matter."""
        if kind in _TC:
            return "" if port == self._own else _TC[kind]
        if kind == _DEL_LINK:
            return "its interface was removed"
        [flags] = struct.unpack_from("=I", body, _FLAGS_AT)
        before = self._times_down.get(index, 0)
        self._times_down[index] = now = _times_down(body, before)
        return "" if flags & _UP == _UP and now == before else "its interface was down"


def _times_down(body: bytes, before: int) -> int:
    """Read how often the notified interface has lost its carrier; `before` where it is untold."""
    start = _ATTRIBUTES_AT
    while start + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, start)
        if kind == _TIMES_DOWN:
            return int(struct.unpack_from("=I", body, start + _ATTRIBUTE.size)[0])
        start += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return before
