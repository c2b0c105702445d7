"""A connection of two processes, over gloo: a process group of its own, so that it may fail alone.

Who listens keeps a store; who joins takes the next number there, and both build the group of that
number. Messages of a direction arrive in order. Every byte is counted. A tensor that is shorter
than what is waited for leaves the rest of the room as it was; one that is longer makes gloo end the
process, which nothing can catch: what follows a message must be what it says.
"""

from datetime import timedelta
from math import nan

import torch
import torch.distributed as dist
from torch import Tensor

from harness.parameter_server.messages import NUMBERS, Message, decoded, encoded

COUNTER = "sessions"  # key of the store


class LineLost(ConnectionError):
    """The other end is gone, or was silent for too long."""


class Line:
    """This process's end. Blocking; LineLost after `timeout_s` without an answer."""

    def __init__(self, store: dist.Store, number: int, end: int, timeout_s: float) -> None:
        """`end` is 0 where the store is kept, 1 at who joins."""
        self._peer, self._timeout = 1 - end, timedelta(seconds=timeout_s)
        own = dist.PrefixStore(f"session{number}", store)
        try:
            self._group: dist.ProcessGroupGloo | None = dist.ProcessGroupGloo(
                own, end, 2, self._timeout
            )
        except RuntimeError as error:
            raise LineLost(f"session {number} was not built: {error}") from error
        self.sent_bytes = self.received_bytes = 0
        self._unconfirmed = 0  # of sent_bytes, since the other end last spoke

    @property
    def confirmed_bytes(self) -> int:
        """Of those sent: what the other end has answered."""
        return self.sent_bytes - self._unconfirmed

    def send(self, message: Message, *tensors: Tensor) -> None:
        """`message`, and the tensors that belong to it; empty ones are left out."""
        for tensor in (encoded(message), *tensors):
            if tensor.numel():
                self._wait("send", tensor)
                self.sent_bytes += tensor.nbytes
                self._unconfirmed += tensor.nbytes

    def receive(self) -> Message:
        """The next message; what belongs to it must be taken next."""
        return decoded(self.take(torch.full((NUMBERS,), nan, dtype=torch.float64)))

    def take(self, room: Tensor) -> Tensor:
        """Fill `room`, contiguous, with the next tensor; it must be of that many bytes."""
        if room.numel():
            self._wait("recv", room)
            self.received_bytes += room.nbytes
            self._unconfirmed = 0
        return room

    def close(self) -> None:
        """The other end learns of it at once."""
        self._group = None

    def _wait(self, operation: str, tensor: Tensor) -> None:
        """For `send` or `recv` of the group."""
        if self._group is None:
            raise LineLost("the session was closed")
        try:
            getattr(self._group, operation)([tensor], self._peer, 0).wait(self._timeout)
        except RuntimeError as error:
            raise LineLost(str(error)) from error


class Listening:
    """The store of a server, and who has joined."""

    def __init__(self, address: str, port: int, timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        timeout = timedelta(seconds=timeout_s)
        self._store = dist.TCPStore(
            address, port, is_master=True, timeout=timeout, wait_for_workers=False
        )
        self.port, self._known = self._store.port, 0

    def joined(self) -> list[int]:
        """Numbers of the sessions that were asked for since the last call."""
        before, self._known = self._known, self._store.add(COUNTER, 0)
        return list(range(before, self._known))

    def line(self, number: int) -> Line:
        """Meet who has asked for session `number`; with a connection to the store of its own."""
        return Line(self._store.clone(), number, 0, self._timeout_s)


def join(address: str, port: int, timeout_s: float, reach_s: float) -> Line:
    """A new session with who listens there, or will within `reach_s`."""
    timeout = timedelta(seconds=reach_s)
    try:
        store = dist.TCPStore(
            address, port, is_master=False, timeout=timeout, wait_for_workers=False
        )
        number = store.add(COUNTER, 1) - 1
        store.set_timeout(timedelta(seconds=timeout_s))
    except RuntimeError as error:
        raise LineLost(f"nobody listens at {address} port {port}: {error}") from error
    return Line(store, number, 1, timeout_s)
