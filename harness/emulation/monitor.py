"""Kernel notifications about qdiscs and links that another process changes during a run.

Readings at every sample miss a change that is undone in between. Notifications miss none: the
kernel names the socket that asked for a change, and ours are left out. A lost carrier is reported
late, with a later state, so we also count how often it was lost.
"""

import ctypes
import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from pyroute2 import IPRoute

from harness.emulation import batch

_LINK_GROUP, _TC_GROUP = 0x1, 0x8  # RTMGRP_LINK, RTMGRP_TC
_NEW_LINK, _DEL_LINK = 16, 17
_TC = {  # RTM_NEW... and RTM_DEL... of traffic control
    36: "a qdisc was set", 37: "a qdisc was removed", 40: "its class was changed",
    41: "a class was removed", 44: "a filter was set", 45: "a filter was removed",
}  # fmt: skip
_QDISCS = (36, 37)
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length with this, type, flags, number, port
_ABOUT = struct.Struct("=Bxxxi")  # of ifinfomsg: family, interface
_TC_ABOUT = struct.Struct("=BxxxiI")  # of tcmsg: family, interface, handle
_FLAGS_AT, _ATTRIBUTES_AT = 8, 16  # of ifinfomsg
_TC_ATTRIBUTES_AT, _TC_KIND = 20, 1  # of tcmsg; TCA_KIND
_INTERFACE_NAME = 3  # IFLA_IFNAME
_TIMES_DOWN, _TIMES_DOWN_NAME = 48, "IFLA_CARRIER_DOWN_COUNT"
_UP = 0x1 | 0x10000  # IFF_UP | IFF_LOWER_UP
_READ_BYTES = 1 << 16
_ROOM_BYTES = 4 << 20  # of notifications between two looks
_SO_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")  # sock_filter: code, jumps if true and if false, value
_PORT_AT, _ALL_BYTES = 12, 0xFFFFFFFF
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS and so on
LOST = "so many changes at once that the kernel did not tell them all"


class OutsideChange(NamedTuple):
    link: str
    what: str


class Monitor:
    """Listener for others' changes of qdiscs, classes, filters and links in one namespace.

    It belongs to the namespace in which it is made, and listens until it is closed.
    """

    def __init__(
        self, where: str, links: Mapping[int, str] | None = None, ip: IPRoute | None = None
    ) -> None:
        """Listen in the namespace called `where`, or "" if only interfaces of `links` are ours.

        `links` names the link of an interface index. Only these are watched for a lost carrier.
        Changes by `ip` are ours. With None no change is.
        """
        self._where, self._links = where, links or {}
        self._names = {index: name for index, name in socket.if_nameindex()}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM_BYTES)
        if ip is not None:
            _leave_out(self._socket, batch.port(ip))
        self._socket.bind((0, _LINK_GROUP | _TC_GROUP))
        self._times_down = {
            link["index"]: link.get_attr(_TIMES_DOWN_NAME) or 0
            for link in (ip.get_links() if ip is not None else [])
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
        """Return others' changes since the last call, each once."""
        changes: dict[OutsideChange, None] = {}
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return list(changes)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                changes[OutsideChange(self._where or "all", LOST)] = None
            else:
                changes |= dict.fromkeys(self._parsed(data))

    def _parsed(self, data: bytes) -> Iterator[OutsideChange]:
        """Return the changes that the notifications in `data` report."""
        start = 0
        while start + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, start)
            body = data[start + _HEADER.size : start + length]
            start += (length + 3) & ~3
            if kind in _TC:
                _, index, handle = _TC_ABOUT.unpack_from(body)
                is_default = kind in _QDISCS and not handle  # the kernel's, which replaces others
                if (name := self._name(index)) is None or is_default:
                    continue
                qdisc = f" ({_text(body, _TC_ATTRIBUTES_AT, _TC_KIND)})"
                yield OutsideChange(name, _TC[kind] + (qdisc if kind in _QDISCS else ""))
            elif kind in (_NEW_LINK, _DEL_LINK):
                index = _ABOUT.unpack_from(body)[1]
                self._names[index] = _text(body, _ATTRIBUTES_AT, _INTERFACE_NAME)
                if index in self._links and (what := self._link_change(kind, index, body)):
                    yield OutsideChange(self._links[index], what)

    def _name(self, index: int) -> str | None:
        """Return the link's name, or interface and namespace. None if it is not ours."""
        if index in self._links:
            return self._links[index]
        interface = self._names.get(index, f"interface {index}")
        return f"{interface} of {self._where}" if self._where else None

    def _link_change(self, kind: int, index: int, body: bytes) -> str:
        """Say what happened to an interface. Empty if it is up and never lost its carrier."""
        if kind == _DEL_LINK:
            return "its interface was removed"
        [flags] = struct.unpack_from("=I", body, _FLAGS_AT)
        before, attributes = self._times_down.get(index, 0), batch.attributes(body, _ATTRIBUTES_AT)
        now = before
        if (count := attributes.get(_TIMES_DOWN)) is not None:
            [now] = struct.unpack_from("=I", count)
        self._times_down[index] = now
        return "" if flags & _UP == _UP and now == before else "its interface was down"


def _text(body: bytes, start: int, kind: int) -> str:
    """Return a text attribute of a notification whose attributes begin at `start`."""
    value = batch.attributes(body, start).get(kind, b"")
    return value.rstrip(b"\0").decode(errors="replace")


def _leave_out(listener: socket.socket, port: int) -> None:
    """Filter out notifications of changes that the netlink socket `port` asks for.

    They would fill the buffer: a thousand links that follow a profile are a thousand notifications.
    """
    program = b"".join(
        _INSTRUCTION.pack(*instruction)
        for instruction in (
            (_LOAD, 0, 0, _PORT_AT),  # as a big-endian number, which the header's is not
            (_IF_EQUAL, 0, 1, struct.unpack(">I", struct.pack("=I", port))[0]),
            (_RETURN, 0, 0, 0),
            (_RETURN, 0, 0, _ALL_BYTES),
        )
    )
    held = ctypes.create_string_buffer(program, len(program))
    told = struct.pack("HP", len(program) // _INSTRUCTION.size, ctypes.addressof(held))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, told)
