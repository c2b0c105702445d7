"""Check whether this machine can carry all that a network asks for, with shapers open."""

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from harness.emulation.probe import Ends, connect

LEAST_HEADROOM = 2.0  # carried / needed; below it, a run measures this machine
_CHUNK_BYTES = 1 << 18


class Ceiling(NamedTuple):
    """Real Mbit/s that all links together may need, and that test flows over them reached."""

    needed_mbit: float
    carried_mbit: float | None  # None where there are no two nodes to measure between

    @property
    def ok(self) -> bool:
        return self.carried_mbit is None or self.carried_mbit >= LEAST_HEADROOM * self.needed_mbit


def capacity_mbit(ends: Sequence[Ends], seconds: float) -> float:
    """Return the payload rate of simultaneous flows between all `ends`, in real Mbit/s."""
    pairs = [connect(each, None) for each in ends]
    stopping = threading.Event()
    received = [0] * len(pairs)

    def send(sender: socket.socket) -> None:
        chunk = memoryview(bytearray(_CHUNK_BYTES))
        with suppress(ConnectionResetError, BrokenPipeError):  # the other end has stopped
            while not stopping.is_set():
                with suppress(TimeoutError):
                    sender.send(chunk)

    def receive(number: int, receiver: socket.socket) -> None:
        buffer = bytearray(_CHUNK_BYTES)
        with suppress(ConnectionResetError):
            while not stopping.is_set():
                received[number] += receiver.recv_into(buffer, 0, socket.MSG_TRUNC)

    threads = [threading.Thread(target=send, args=(sender,)) for _, sender in pairs]
    threads += [
        threading.Thread(target=receive, args=(number, receiver))
        for number, (receiver, _) in enumerate(pairs)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 4)  # slow start
    before, start_s = sum(received), time.monotonic()
    time.sleep(seconds / 2)
    carried, took_s = sum(received) - before, time.monotonic() - start_s
    stopping.set()
    for receiver, sender in pairs:
        sender.shutdown(socket.SHUT_RDWR)
        receiver.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    for pair in pairs:
        for end in pair:
            end.close()
    return carried / took_s / 125_000
