"""A connection of two processes: tensors over TCP, in order, each behind its length.

Not a process group of gloo's: that tells nobody who is within a tensor that its other end is gone
(measured: he waits for the whole timeout), and asks a resolver for names that nobody needs. The
bytes of tensors are counted, those of their lengths are not.
"""

import socket
import struct
import time
from collections.abc import Callable

import torch
from torch import Tensor

from harness.engine.parameter_server.messages import (
    NUMBERS,
    Message,
    ProtocolError,
    decoded,
    encoded,
)

LENGTH = struct.Struct("!Q")  # bytes of the tensor behind it
AGAIN_S = 0.02  # between attempts to reach who does not listen yet
WAITING = 1024  # connections that were not let in yet


class ConnectionLost(ConnectionError):
    """The other end is gone, or was silent for too long."""


class TcpConnection:
    """This process's end. Blocking; ConnectionLost after `timeout_s` in which nothing moved."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        connection.settimeout(timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self.sent_bytes = self.received_bytes = 0
        self._unconfirmed = 0  # of sent_bytes, since the other end last spoke

    @property
    def confirmed_bytes(self) -> int:
        """Bytes sent that the other end has answered."""
        return self.sent_bytes - self._unconfirmed

    def send(self, message: Message, *tensors: Tensor) -> None:
        """`message`, and the tensors that belong to it; empty ones are left out."""
        for tensor in (encoded(message), *tensors):
            if tensor.numel():
                self._pass_on(memoryview(LENGTH.pack(tensor.nbytes)), self._send_with_next)
                self._pass_on(_bytes(tensor.contiguous()), self._connection.send)
                self.sent_bytes += tensor.nbytes
                self._unconfirmed += tensor.nbytes

    def receive(self) -> Message:
        """The next message; what belongs to it must be taken next."""
        return decoded(self.take(torch.empty(NUMBERS, dtype=torch.float64)))

    def take(self, room: Tensor) -> Tensor:
        """Fill `room`, contiguous, with the next tensor; ProtocolError: it is of another length."""
        if room.numel():
            length = memoryview(bytearray(LENGTH.size))
            self._pass_on(length, self._connection.recv_into)
            [nbytes] = LENGTH.unpack(length)
            if nbytes != room.nbytes:
                raise ProtocolError(f"expected {room.nbytes} bytes, the other end sends {nbytes}")
            self._pass_on(_bytes(room), self._connection.recv_into)
            self.received_bytes += room.nbytes
            self._unconfirmed = 0
        return room

    def close(self) -> None:
        """The other end learns of it at once, as does a thread of ours that waits here."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster
        self._connection.close()

    def _send_with_next(self, content: memoryview) -> int:
        """Send `content` in one packet with what is sent next."""
        return self._connection.send(content, socket.MSG_MORE)

    def _pass_on(self, content: memoryview, some: Callable[[memoryview], int]) -> None:
        """All of `content`, by `some`, which moves a part at a time; each part has the timeout."""
        while content:
            try:
                moved = some(content)
            except TimeoutError as error:
                silent_s = self._connection.gettimeout()
                raise ConnectionLost(
                    f"Timed out waiting {silent_s:g} s for the other end"
                ) from error
            except OSError as error:
                ours = self._connection.fileno() < 0
                lost = "the session was closed" if ours else f"Connection reset by peer: {error}"
                raise ConnectionLost(lost) from error
            if moved == 0:
                raise ConnectionLost("Connection closed by peer")
            content = content[moved:]


def _bytes(tensor: Tensor) -> memoryview:
    """Memory of a contiguous tensor, not copied."""
    return tensor.detach().view(-1).view(torch.uint8).numpy().data


class Listening:
    """Listens for connections on `address` alone; port 0 takes any that is free."""

    def __init__(self, address: str, port: int, timeout_s: float) -> None:
        self._socket = socket.create_server((address, port), backlog=WAITING)
        self._socket.setblocking(False)
        self._timeout_s, self.port = timeout_s, self._socket.getsockname()[1]

    def has_come(self) -> bool:
        return False  # nobody knows without asking

    def joined(self) -> list[TcpConnection]:
        """Connections made since the last call."""
        connections: list[TcpConnection] = []
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return connections
            except ConnectionError:
                continue  # it left before it was let in
            connections.append(TcpConnection(connection, self._timeout_s))


def join(address: str, port: int, timeout_s: float, reach_s: float) -> TcpConnection:
    """A new session with who listens there within `reach_s`. ConnectionLost: nobody does."""
    end = time.monotonic() + reach_s
    while True:
        left_s = max(end - time.monotonic(), AGAIN_S)
        try:
            return TcpConnection(socket.create_connection((address, port), left_s), timeout_s)
        except OSError as error:
            if time.monotonic() + AGAIN_S >= end:
                lost = f"nobody listens at {address} port {port}: {error}"
                raise ConnectionLost(lost) from error
        time.sleep(AGAIN_S)
