"""What packets between two namespaces live through: round trips, order, loss, a TCP flow."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from harness.emulation.namespaces import Namespace

PATIENCE_S = 3.0
SO_RCVBUFFORCE = 33  # beyond net.core.rmem_max; asks for root of the machine
_TCP_INFO_RETRANSMITS, _TCP_INFO_SEGMENTS = 100, 136  # offsets of 32-bit counters


class End(NamedTuple):
    namespace: Namespace
    address: str


class Flow(NamedTuple):
    """A TCP flow: payload rate after its first third, and frames it sent."""

    rate_mbit: float
    segments: int
    retransmits: int


def near(value: float, wanted: float, share: float = 0.1, least: float = 5.0) -> bool:
    """Whether a measured value is as wanted; `least` is a tolerance in its unit."""
    return abs(value - wanted) <= max(share * wanted, least)


@contextmanager
def datagrams(sender: End, receiver: End) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connected UDP socket at each end."""
    with receiver.namespace.entered():
        there = socket.socket(type=socket.SOCK_DGRAM)
    with sender.namespace.entered():
        here = socket.socket(type=socket.SOCK_DGRAM)
    with here, there:
        there.bind((receiver.address, 0))
        here.bind((sender.address, 0))
        here.connect(there.getsockname())
        there.connect(here.getsockname())
        for end in (here, there):
            end.settimeout(PATIENCE_S)
        yield here, there


def round_trips_ms(sender: End, receiver: End, count: int) -> list[float]:
    """Milliseconds of `count` round trips, one after the other; TimeoutError when one is lost."""
    found = []
    with datagrams(sender, receiver) as (here, there):

        def echo() -> None:
            for _ in range(count):
                there.send(there.recv(64))

        thread = threading.Thread(target=echo, daemon=True)
        thread.start()
        for number in range(count):
            start = time.monotonic()
            here.send(struct.pack("I", number))
            assert struct.unpack("I", here.recv(64)) == (number,)
            found.append(1000 * (time.monotonic() - start))
        thread.join()
    return found


def round_trip_ms(sender: End, receiver: End, count: int = 15) -> float:
    """The shortest of `count`: a delay never lets one be early, a busy machine makes many late."""
    return min(round_trips_ms(sender, receiver, count))


def arrivals(
    sender: End, receiver: End, count: int, every_s: float = 0.0, quiet_s: float = 1.0
) -> list[int]:
    """Numbers of the `count` datagrams that arrived, in order, until `quiet_s` passed without.

    Only as root of the machine, as a burst must not be lost in the receiving socket.
    """
    found: list[int] = []
    with datagrams(sender, receiver) as (here, there):
        there.settimeout(quiet_s)
        there.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)

        def receive() -> None:
            try:
                while True:
                    found.append(struct.unpack("I", there.recv(64))[0])
            except TimeoutError:
                pass

        thread = threading.Thread(target=receive)
        thread.start()
        due = time.monotonic()
        for number in range(count):
            here.send(struct.pack("I", number))
            due += every_s
            if (early_s := due - time.monotonic()) > 0:
                time.sleep(early_s)  # the pace of the datagrams is what is asked for
        thread.join()
    return found


def flow(sender: End, receiver: End, seconds: float) -> Flow:
    """Send by TCP as fast as it goes."""
    with receiver.namespace.entered():
        listener = socket.create_server((receiver.address, 0))
    with sender.namespace.entered():
        here = socket.create_connection(listener.getsockname())
    there, _ = listener.accept()
    received = [0]

    def receive() -> None:
        buffer = bytearray(1 << 18)
        while count := there.recv_into(buffer):
            received[0] += count

    thread = threading.Thread(target=receive)
    thread.start()
    start, mark = time.monotonic(), (0.0, 0)
    with here, there, listener:
        while (now := time.monotonic()) < start + seconds:
            here.send(bytes(1 << 16))
            if not mark[0] and now > start + seconds / 3:
                mark = (now, received[0])
        rate_mbit = (received[0] - mark[1]) / (time.monotonic() - mark[0]) / 125_000
        info = here.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        here.shutdown(socket.SHUT_WR)
        thread.join()
    segments, again = (
        struct.unpack_from("I", info, offset)[0]
        for offset in (_TCP_INFO_SEGMENTS, _TCP_INFO_RETRANSMITS)
    )
    return Flow(rate_mbit, segments, again)
