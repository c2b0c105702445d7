"""Proof of shaping: one TCP flow per link and direction, measured at the receiver."""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from harness.emulation.namespaces import Namespace

PAYLOAD_SHARE = 1448 / 1514  # TCP payload per Ethernet frame at MTU 1500 with timestamps
LOWEST_OK, HIGHEST_OK = 0.93, 1.03  # measured / expected
TOGETHER_MBIT = 4000.0  # real rate that flows of one probe may sum to, on two cores
_FEWEST_BYTES = 32 * 1448  # measured at any rate, so a slow link takes longer
_CHUNK_BYTES = 1 << 18
_WINDOW_S = 0.1
TRIES = 5  # of a flow alone; beside a test run and five loops on two cores one of eight missed
_PATIENCE_S = 20.0  # for one chunk of bytes to arrive, or a connection to be made


class Probe(NamedTuple):
    """Measured and expected payload rate of one link, in emulated Mbit/s."""

    link: str
    planned_mbit: float
    expected_mbit: float  # planned, less headers
    measured_mbit: float
    ok: bool
    tries: int = 1  # measurements, of which this is the last


class Ends(NamedTuple):
    """Both ends of a flow: namespaces, and the receiver's address."""

    sender: Namespace
    receiver: Namespace
    address: str  # of the receiver


class ProbePath(NamedTuple):
    """Both ends of a flow, and its expected real rate."""

    sender: Namespace
    receiver: Namespace
    address: str  # of the receiver
    rate_mbit: float


class ProbeFlow:
    """A TCP connection whose sender never pauses. Sockets stay in their first namespace."""

    def __init__(self, path: ProbePath, seconds: float, queue_bytes: int | None) -> None:
        """Connect, and measure for `seconds` or the time of 32 packets, whichever is longer."""
        self._rate_mbit, self._seconds = path.rate_mbit, seconds
        window = window_bytes(path.rate_mbit, queue_bytes) if queue_bytes else None
        self._receiver, self._sender = connect(path, window)
        self._done = threading.Event()
        self.measured_mbit = 0.0
        self._threads = [threading.Thread(target=run) for run in (self._send, self._receive)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> float:
        """Return the payload rate in real Mbit/s, or 0 if the flow stalled."""
        for thread in self._threads:
            thread.join()
        self._sender.close()
        self._receiver.close()
        return self.measured_mbit

    def _send(self) -> None:
        send_until(self._sender, self._done.is_set)

    def _receive(self) -> None:
        try:
            self.measured_mbit = received_mbit(self._receiver, self._rate_mbit, self._seconds)
        finally:
            self._done.set()


def window_bytes(rate_mbit: float, queue_bytes: int) -> int:
    """Return the bytes in flight that neither overflow the queue nor drain slowly."""
    expected = rate_mbit * PAYLOAD_SHARE * 125_000
    return min(queue_bytes // 4, max(_FEWEST_BYTES // 2, int(expected * _WINDOW_S)))


def send_until(sender: socket.socket, done: Callable[[], bool]) -> None:
    """Send without a pause until `done`, or until the receiver has closed."""
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    while not done():
        try:
            sender.send(chunk)
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return


def received_mbit(receiver: socket.socket, rate_mbit: float, seconds: float) -> float:
    """Return the payload received in `seconds`, in real Mbit/s, or 0 if it stalls."""
    expected = rate_mbit * PAYLOAD_SHARE * 125_000
    # the first part is slow start and what an idle shaper lets through at once
    warm_bytes = max(expected * seconds / 2, _FEWEST_BYTES / 2)
    measured_bytes = max(expected * seconds, _FEWEST_BYTES)
    buffer = bytearray(_CHUNK_BYTES)
    total, start, start_total = 0, 0.0, 0
    try:
        while not start or total - start_total < measured_bytes:
            # MSG_TRUNC: counted by the kernel, not copied
            total += (came := receiver.recv_into(buffer, 0, socket.MSG_TRUNC))
            if not came:
                return 0.0  # the sender is gone
            if not start and total >= warm_bytes:
                start, start_total = time.monotonic(), total
    except TimeoutError:
        return 0.0  # which no tolerance accepts
    return (total - start_total) / (time.monotonic() - start) / 125_000


def connect(path: ProbePath | Ends, window: int | None) -> tuple[socket.socket, socket.socket]:
    """Return the receiving and the sending socket of a new TCP connection along `path`.

    `window`, in bytes, limits the sender's buffer, if given. Raise OSError if connecting fails.
    """
    with ExitStack() as stack:
        with path.receiver.entered():
            listener = stack.enter_context(socket.create_server((path.address, 0)))
        with path.sender.entered():
            sender = socket.socket()
        if window:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, window)
        sender.settimeout(_PATIENCE_S)
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
    make_ready(receiver, sender)
    return receiver, sender


def make_ready(receiver: socket.socket | None, sender: socket.socket | None) -> None:
    """Set the socket options for measuring, on the ends that are in this process."""
    if receiver:
        receiver.settimeout(_PATIENCE_S)
    if sender:
        sender.settimeout(0.1)
        # nothing is left under way when the flow ends
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def measure(
    paths: Sequence[ProbePath], seconds: float, queue_bytes: int | None = None
) -> list[float]:
    """Measure the payload rate of each path in real Mbit/s, all at the same time.

    `queue_bytes` is the paths' queue, which the flows then never fill. With None TCP decides.
    """
    flows = [ProbeFlow(path, seconds, queue_bytes) for path in paths]
    for flow in flows:
        flow.start()
    return [flow.join() for flow in flows]


def groups(paths: Sequence[ProbePath], total_mbit: float) -> list[list[int]]:
    """Group the paths' numbers into runs whose rates together stay below `total_mbit`."""
    found: list[list[int]] = []
    room = 0.0
    for number, path in enumerate(paths):
        if not found or path.rate_mbit > room:
            found.append([])
            room = total_mbit
        found[-1].append(number)
        room -= path.rate_mbit
    return found


def measure_in_turn(paths: Sequence[ProbePath], seconds: float, queue_bytes: int) -> list[Probe]:
    """Probe each path in real Mbit/s, many at once; repeat alone a path that missed its rate."""
    rates: list[float] = []
    for group in groups(paths, TOGETHER_MBIT):
        rates += measure([paths[n] for n in group], seconds, queue_bytes)
    probes = [judge("", path.rate_mbit, rate) for path, rate in zip(paths, rates, strict=True)]
    tries = TRIES
    for number, path in enumerate(paths):
        if not probes[number].ok:
            again = tried(partial(_alone, path, seconds, queue_bytes), tries)
            probes[number] = again._replace(tries=1 + again.tries)
            if not again.ok:
                tries = 1  # one path that stays wrong is enough to know
    return probes


def _alone(path: ProbePath, seconds: float, queue_bytes: int) -> Probe:
    return judge("", path.rate_mbit, measure([path], seconds, queue_bytes)[0])


def tried(probe: Callable[[], Probe], tries: int = TRIES) -> Probe:
    """Return the first good of at most `tries` probes, else the last. A stall ends the tries.

    A sender that waits for a processor is too slow for a moment. A wrong rate stays wrong.
    """
    for number in range(1, tries + 1):
        found = probe()._replace(tries=number)
        if found.ok or not found.measured_mbit:
            break
    return found


def payload_share(mtu_bytes: int) -> float:
    """Return TCP payload per Ethernet frame, without 20 bytes of IP, 32 of TCP, 14 of Ethernet."""
    return (mtu_bytes - 52) / (mtu_bytes + 14)


def judge(
    link: str, planned_mbit: float, measured_mbit: float, share: float = PAYLOAD_SHARE
) -> Probe:
    """Judge whether `link` carries the expected `share` of its rate."""
    expected = planned_mbit * share
    ok = LOWEST_OK * expected <= measured_mbit <= HIGHEST_OK * expected
    return Probe(link, planned_mbit, expected, measured_mbit, ok)
