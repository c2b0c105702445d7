"""TCP connection between two processes that carries messages and tensors in order.

Each tensor follows its length. A torch process group is not suitable: if one end dies within a
tensor, the other end waits for the whole timeout, and it resolves host names. The byte counts
include tensors, but not their lengths.
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
RETRY_S = 0.02  # between attempts to reach a server that does not listen yet
BACKLOG = 1024  # connections that were not accepted yet


class ConnectionLost(ConnectionError):
    """The other end is gone, or sent nothing for too long."""


class TcpConnection:
    """This process's end of a TCP connection.

    Every call blocks. It raises ConnectionLost if no byte moves for `timeout_s`, or if the other
    end is gone; with None it waits without limit.
    """

    def __init__(self, connection: socket.socket, timeout_s: float | None) -> None:
        connection.settimeout(timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self.sent_bytes = self.received_bytes = 0

    def send(self, message: Message, *tensors: Tensor) -> None:
        """Send `message` and the tensors that belong to it; empty tensors are left out."""
        for tensor in (encoded(message), *tensors):
            if tensor.numel():
                self._move(memoryview(LENGTH.pack(tensor.nbytes)), self._send_with_next)
                self._move(_bytes(tensor.contiguous()), self._connection.send)
                self.sent_bytes += tensor.nbytes

    def receive(self) -> Message:
        """Return the next message; the caller then takes the tensors that belong to it."""
        return decoded(self.take(torch.empty(NUMBERS, dtype=torch.float64)))

    def take(self, room: Tensor) -> Tensor:
        """Fill contiguous `room` with the next tensor; ProtocolError if its length differs."""
        if room.numel():
            length = memoryview(bytearray(LENGTH.size))
            self._move(length, self._connection.recv_into)
            [nbytes] = LENGTH.unpack(length)
            if nbytes != room.nbytes:
                raise ProtocolError(f"expected {room.nbytes} bytes, the other end sends {nbytes}")
            self._move(_bytes(room), self._connection.recv_into)
            self.received_bytes += room.nbytes
        return room

    def close(self) -> None:
        self._connection.close()

    def _send_with_next(self, content: memoryview) -> int:
        """Send part of `content`, held back for one packet with the next bytes; return its size."""
        return self._connection.send(content, socket.MSG_MORE)

    def _move(self, content: memoryview, some: Callable[[memoryview], int]) -> None:
        """Move all of `content` by calls of `some`; ConnectionLost if the end is silent or gone."""
        while content:
            try:
                moved = some(content)
            except TimeoutError as error:
                silent_s = self._connection.gettimeout()
                raise ConnectionLost(
                    f"Timed out waiting {silent_s:g} s for the other end"
                ) from error
            except OSError as error:
                raise ConnectionLost(f"Connection reset by peer: {error}") from error
            if moved == 0:
                raise ConnectionLost("Connection closed by peer")
            content = content[moved:]


def _bytes(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor without a copy."""
    return tensor.detach().view(-1).view(torch.uint8).numpy().data


class Listening:
    """A socket that listens on `address` only; port 0 takes any free port."""

    def __init__(self, address: str, port: int, timeout_s: float) -> None:
        self._socket = socket.create_server((address, port), backlog=BACKLOG)
        self._timeout_s, self.port = timeout_s, self._socket.getsockname()[1]

    def accept(self) -> TcpConnection:
        """Wait for the next connection and return it."""
        return TcpConnection(self._socket.accept()[0], self._timeout_s)


def join(address: str, port: int, reach_s: float) -> TcpConnection:
    """Connect to the server within `reach_s`. Raise ConnectionLost if no server listens there."""
    end = time.monotonic() + reach_s
    while True:
        left_s = max(end - time.monotonic(), RETRY_S)
        try:
            return TcpConnection(socket.create_connection((address, port), left_s), None)
        except OSError as error:
            if time.monotonic() + RETRY_S >= end:
                lost = f"nobody listens at {address} port {port}: {error}"
                raise ConnectionLost(lost) from error
        time.sleep(RETRY_S)
