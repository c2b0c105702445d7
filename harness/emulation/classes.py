"""Netlink encoding of HTB classes, qdiscs and queue counters; rates in bytes/s, bursts in us.

A rate includes its link layer, so kernels since 3.10 do not need the two tables of 256 times that
pyroute2 computes for every change. Rates from 2^32 bytes/s (34.36 Gbit/s) do not fit the old field,
which then has 2^32 - 1; a second attribute has the rate. Bursts are times in ticks of 64 ns,
whatever the rate. The kernel answers a change with the new state of the class.
"""

import struct
from typing import NamedTuple

from harness.emulation.batch import CREATE, Request, attribute, attributes

GET_QDISC, NEW_CLASS, GET_CLASS = 38, 40, 42
HTB, BFIFO = b"htb\0", b"bfifo\0"
_TC = struct.Struct("=B3xiIII")  # tcmsg: family, interface, handle, parent, info
# tc_htb_opt: rate and ceiling, each as cell log, link layer, overhead, alignment, least size, rate;
# then their bursts, quantum, level, priority
_PARAMETERS = struct.Struct("=BBHhHI BBHhHI IIIII")
_ETHERNET = 1
_TICKS_PER_US = 15.625
_LARGEST = 2**32 - 1
_KIND, _OPTIONS, _STATISTICS = 1, 2, 7  # TCA_KIND, TCA_OPTIONS, TCA_STATS2
_PARMS, _RATE64, _CEIL64 = 1, 6, 7  # TCA_HTB_...
_BASIC, _QUEUE = 1, 3  # TCA_STATS_BASIC: bytes, packets; ..._QUEUE: packets, bytes, drops, ...


class Class(NamedTuple):
    """Address of an HTB class: interface, own handle, parent's handle."""

    interface: int
    handle: int
    parent: int


class ClassRate(NamedTuple):
    """Rate and burst of an HTB class; its ceiling equals its rate."""

    rate: int  # bytes/s, the lower of the two
    burst_us: int


class Queue(NamedTuple):
    """Limit and counters of a queue."""

    limit_bytes: int
    bytes: int  # sent from it
    backlog_bytes: int
    drops: int


def tell(where: Class, rate: int, burst_us: int, quantum_bytes: int, add: bool = False) -> Request:
    """Return the request that changes a class, or adds it; the answer has its new state."""
    ticks = round(burst_us * _TICKS_PER_US)
    spec = (0, _ETHERNET, 0, 0, 0, min(rate, _LARGEST))
    options = attribute(_PARMS, _PARAMETERS.pack(*spec, *spec, ticks, ticks, quantum_bytes, 0, 0))
    if rate > _LARGEST:
        options += attribute(_RATE64, struct.pack("=Q", rate))
        options += attribute(_CEIL64, struct.pack("=Q", rate))
    body = _TC.pack(0, *where, 0) + attribute(_KIND, HTB) + attribute(_OPTIONS, options)
    return Request(NEW_CLASS, CREATE if add else 0, body)


def ask_for(where: Class) -> Request:
    return Request(GET_CLASS, 0, _TC.pack(0, *where, 0))


def ask_for_leaf(where: Class) -> Request:
    """Return the request for the qdisc below a class."""
    return Request(GET_QDISC, 0, _TC.pack(0, where.interface, 0, where.handle, 0))


def all_qdiscs() -> tuple[int, bytes]:
    """Return type and body of the request that dumps all qdiscs."""
    return GET_QDISC, _TC.pack(0, 0, 0, 0, 0)


def held(body: bytes) -> ClassRate | None:
    """Parse an answer about a class; return None if it is no HTB class."""
    found = attributes(body, _TC.size)
    if found[_KIND] != HTB:
        return None
    options = attributes(found[_OPTIONS])
    told = _PARAMETERS.unpack_from(options[_PARMS])
    rate, ceiling, ticks = told[5], told[11], told[12]
    if _RATE64 in options:
        rate = struct.unpack("=Q", options[_RATE64])[0]
    if _CEIL64 in options:
        ceiling = struct.unpack("=Q", options[_CEIL64])[0]
    return ClassRate(min(rate, ceiling), int(ticks / _TICKS_PER_US))


def place(body: bytes) -> tuple[int, int]:
    """Return the interface and handle that an answer is about."""
    _, interface, handle, _, _ = _TC.unpack_from(body)
    return interface, handle


def queue(body: bytes) -> Queue | None:
    """Parse an answer about a queue; return None if it is no bfifo."""
    found = attributes(body, _TC.size)
    if found[_KIND] != BFIFO:
        return None
    [limit] = struct.unpack_from("=I", found[_OPTIONS])
    return Queue(limit, *_counted(found))


def _counted(found: dict[int, bytes]) -> tuple[int, int, int]:
    """Return the bytes sent, the bytes that wait, and the packets dropped."""
    counted = attributes(found[_STATISTICS])
    [sent] = struct.unpack_from("=Q", counted[_BASIC])
    _, backlog, drops = struct.unpack_from("=III", counted[_QUEUE])
    return sent, backlog, drops
