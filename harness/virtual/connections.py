"""Connections of two ranks in virtual time, which deliver messages in order."""

from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.engine.parameter_server.messages import (
    NUMBERS,
    Message,
    ProtocolError,
    decoded,
    encoded,
)
from harness.virtual.wires import Begin, There, Travelling
from harness.virtual.world import World


@dataclass
class ByteStream:
    """One direction between two ranks. Ranks in `still` send in no time."""

    world: World
    begin: Begin
    ends: tuple[int, int]  # from a rank to another
    still: set[int]
    _sent: deque[tuple[Travelling, Tensor]] = field(default_factory=deque, init=False)

    def send(self, *tensors: Tensor) -> None:
        """Send all tensors in one message, with their present content."""
        now_s = self.world.now_s
        nbytes = sum(tensor.nbytes for tensor in tensors)
        quick = self.still.issuperset(self.ends)
        way = There(now_s) if quick else self.begin(now_s, *self.ends, nbytes)
        self._sent.extend((way, tensor.detach().clone()) for tensor in tensors)

    def take(self, room: Tensor) -> None:
        """Wait for the next tensor and copy it to `room`; ProtocolError if its size differs."""
        self.world.wait(lambda: self._sent[0][0].end_s if self._sent else None)
        content = self._sent.popleft()[1]
        if content.nbytes != room.nbytes:
            raise ProtocolError(f"expected {room.nbytes} bytes, got {content.nbytes}")
        room.view(-1).copy_(content.view(-1))


@dataclass
class VirtualConnection:
    """A `MessageConnection` of server and trainer in virtual time, which is never lost."""

    out: ByteStream
    back: ByteStream
    sent_bytes: int = field(default=0, init=False)
    received_bytes: int = field(default=0, init=False)

    def send(self, message: Message, *tensors: Tensor) -> None:
        full = [tensor for tensor in (encoded(message), *tensors) if tensor.numel()]
        self.out.send(*full)
        self.sent_bytes += sum(tensor.nbytes for tensor in full)

    def receive(self) -> Message:
        return decoded(self.take(torch.empty(NUMBERS, dtype=torch.float64)))

    def take(self, room: Tensor) -> Tensor:
        if room.numel():
            self.back.take(room)
            self.received_bytes += room.nbytes
        return room

    def close(self) -> None:
        return None
