"""Round trips of small packets over empty links: the proof of delays.

The kernel timestamps arrivals, so late reading by this process does not count.
"""

import selectors
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from harness.emulation.direction import Direction
from harness.emulation.probe import Ends

PACKETS, EVERY_S, PATIENCE_S = 21, 0.01, 2.0  # to each; between two; after the last
SHARE_OK, SLACK_MS = 0.10, 5.0  # real; a timer of a 100 Hz kernel is 10 ms coarse
SO_TIMESTAMPNS = 35  # what socket(7) calls SO_TIMESTAMP, in ns
_TIMESPEC = struct.Struct("@ll")  # s, ns
_PACKET = struct.Struct("qq")  # ns: time of sending, time on the way there


class RoundTrip(NamedTuple):
    """Planned and median measured round trip, in emulated ms. None if no packet came back."""

    name: str
    planned_ms: float
    measured_ms: float | None
    ok: bool


class RttPath(NamedTuple):
    """Path to another node and back: directions crossed, and the sender's address there."""

    name: str
    ends: Ends
    crossed: Sequence[tuple[Direction, str]]

    def planned_ms(self) -> float:
        """Planned round trip at time 0, in emulated ms."""
        return sum(direction.delay_ms(address) for direction, address in self.crossed)

    def judge(self, measured_ms: float | None) -> RoundTrip:
        """Judge `measured_ms`, which is real. Jitter may shift the median by at most itself."""
        planned_ms, dilation = self.planned_ms(), self.crossed[0][0].dilation
        if measured_ms is None:
            return RoundTrip(self.name, planned_ms, None, False)
        jitter_ms = sum(direction.conditions(0.0).jitter_ms for direction, _ in self.crossed)
        slack_ms = SHARE_OK * planned_ms + jitter_ms + SLACK_MS / dilation
        emulated_ms = measured_ms / dilation
        ok = abs(emulated_ms - planned_ms) <= slack_ms
        return RoundTrip(self.name, planned_ms, emulated_ms, ok)


def round_trips_ms(ends: Sequence[Ends]) -> list[float | None]:
    """Return the median round trip of each path in real ms, measured at the same time."""
    found: list[list[float]] = [[] for _ in ends]
    with ExitStack() as held, selectors.DefaultSelector() as selector:
        senders = []
        for number, each in enumerate(ends):
            with each.receiver.entered():
                receiver = held.enter_context(_stamping())
            receiver.bind((each.address, 0))
            with each.sender.entered():
                sender = held.enter_context(_stamping())
            sender.connect(receiver.getsockname())
            selector.register(receiver, selectors.EVENT_READ, None)
            selector.register(sender, selectors.EVENT_READ, number)
            senders.append(sender)
        start_s, sent = time.monotonic(), 0
        while any(len(times) < PACKETS for times in found):
            now_s = time.monotonic()
            if now_s > start_s + PACKETS * EVERY_S + PATIENCE_S:
                break
            if sent < PACKETS and now_s >= start_s + sent * EVERY_S:
                sent += 1
                for sender in senders:
                    sender.send(_PACKET.pack(time.time_ns(), 0))
            _answer(selector, found)
    return [statistics.median(times) if times else None for times in found]


def _stamping() -> socket.socket:
    """Return a UDP socket that timestamps arriving packets."""
    made = socket.socket(type=socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return made


def _answer(selector: selectors.BaseSelector, found: list[list[float]]) -> None:
    """Handle the packets that have arrived: echo them at receivers, time echoes at senders.

    Append the round trip of an echo, in ms, to the list in `found` of its path.
    """
    for key, _ in selector.select(EVERY_S / 2):
        end = key.fileobj
        assert isinstance(end, socket.socket)
        packet, [(_, _, stamp), *_], _, source = end.recvmsg(
            _PACKET.size, socket.CMSG_SPACE(_TIMESPEC.size)
        )
        (s, ns), (sent_ns, there_ns) = _TIMESPEC.unpack(stamp), _PACKET.unpack(packet)
        taken_ns = s * 10**9 + ns - sent_ns
        if key.data is None:
            end.sendto(_PACKET.pack(time.time_ns(), taken_ns), source)
        else:
            found[key.data].append((there_ns + taken_ns) / 1e6)
