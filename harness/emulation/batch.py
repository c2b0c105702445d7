"""Hand-made netlink requests: many in one system call, with little decoding of answers.

The kernel serves a request within the call that sends it, so all answers wait in the socket when
the call returns. Requests are independent: a refused one does not stop those after it.
"""

import errno
import itertools
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

REQUEST, ACK, ECHO, DUMP, CREATE = 0x1, 0x4, 0x8, 0x300, 0x600  # CREATE refuses existing ones
MOST_AT_ONCE = 64  # their answers, of 1 KiB, fit into a receive buffer of the usual 208 KiB
_READ_BYTES = 1 << 16
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length with this, type, flags, number, port
_ATTRIBUTE = struct.Struct("=HH")  # nlattr: length with this, type
_NUMBERS = itertools.count(1 << 24)  # of requests; pyroute2 counts below


class Request(NamedTuple):
    kind: int  # RTM_...
    flags: int
    body: bytes


def attribute(kind: int, payload: bytes) -> bytes:
    """Return one attribute, padded to 4 bytes."""
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind)
    return head + payload + bytes(-len(payload) % 4)


def attributes(data: bytes, start: int = 0) -> dict[int, bytes]:
    """Return the payload of every attribute of `data` from byte `start` on, by type."""
    found = {}
    while start + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        found[kind & 0x3FFF] = data[start + _ATTRIBUTE.size : start + length]
        start += (length + 3) & ~3
    return found


def ask(ip: IPRoute, requests: Sequence[Request]) -> list[bytes | int]:
    """Send requests. Return each answer's body, or the error number of a refused request."""
    found: list[bytes | int] = []
    for first in range(0, len(requests), MOST_AT_ONCE):
        found += _ask_at_once(ip, requests[first : first + MOST_AT_ONCE])
    return found


def _ask_at_once(ip: IPRoute, requests: Sequence[Request]) -> list[bytes | int]:
    numbers = [next(_NUMBERS) for _ in requests]
    last = numbers[-1]
    # without ECHO the kernel reports changes to listeners only, not to the asking socket
    flags = [ECHO | ACK if number == last else ECHO for number in numbers]
    ip.send(b"".join(map(_message, requests, numbers, flags)))
    found: dict[int, bytes | int] = {}
    receive, ended = ip.recv, False  # looked up once: pyroute2 takes longer for it than the kernel
    while not ended:  # with the last request's acknowledgement, which follows its answer
        for kind, number, body in messages(receive(_READ_BYTES)):
            if kind != _ERROR:
                found[number] = body
            elif code := -struct.unpack_from("=i", body)[0]:
                found[number] = code
            ended |= kind == _ERROR and number == last
    return [found.get(number, errno.ENODATA) for number in numbers]


def port(ip: IPRoute) -> int:
    """Return the port of the socket of `ip`, which notifications name. 0 before a request."""
    with socket.socket(fileno=os.dup(ip.fileno())) as same:
        number: int = same.getsockname()[0]
    return number


def dump(ip: IPRoute, kind: int, body: bytes) -> Iterator[bytes]:
    """Return the body of each object the kernel lists. Raise NetlinkError if it refuses."""
    number = next(_NUMBERS)
    ip.send(_message(Request(kind, DUMP, body), number))
    while True:
        for answered, to, answer in messages(ip.recv(_READ_BYTES)):
            if to == number and answered in (_ERROR, _DONE):
                if code := -struct.unpack_from("=i", answer)[0]:
                    raise NetlinkError(code)
                return
            if to == number:
                yield answer


def _message(request: Request, number: int, more_flags: int = 0) -> bytes:
    flags = REQUEST | request.flags | more_flags
    length = _HEADER.size + len(request.body)
    return _HEADER.pack(length, request.kind, flags, number, 0) + request.body


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, request number and body of each message in `data`."""
    start = 0
    while start + _HEADER.size <= len(data):
        length, kind, _, number, _ = _HEADER.unpack_from(data, start)
        yield kind, number, data[start + _HEADER.size : start + length]
        start += (length + 3) & ~3
