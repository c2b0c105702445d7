"""One thread of the server for one thread of a trainer: what is asked for, in its order."""

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from harness.parameter_server.line import Line
from harness.parameter_server.messages import (
    Ack,
    Answer,
    Ask,
    Done,
    Hello,
    Message,
    ProtocolError,
    Pull,
    Push,
    Refusal,
    Wait,
    Weights,
    Welcome,
)
from harness.parameter_server.weights import Piece

if TYPE_CHECKING:
    from harness.parameter_server.service import Service

SAYS = 3  # times within the timeout that a thread which waits is told so
M = TypeVar("M", bound=Message)
INDEX_TYPES = {4: torch.int32, 8: torch.int64}


@dataclass(eq=False)
class Session:
    """Of the trainer's thread that has joined by `line`; nothing is known of it before Hello."""

    service: "Service"
    line: Line
    timeout_s: float
    rank: int = -1
    thread: int = -1
    _speaking: threading.Lock = field(default_factory=threading.Lock, init=False)
    _bytes_before: tuple[int, int] = field(default=(0, 0), init=False)

    def serve(self) -> None:
        """Until its steps are done. LineLost, ProtocolError: the session is over before that."""
        self._welcome(_expected(self.line.receive(), Hello))
        while True:
            message = self.line.receive()
            if isinstance(message, Pull):
                self._send_weights()
            elif isinstance(message, Push):
                self._take_in(message)
            else:
                _expected(message, Done)
                self.service.gate.finish(self, self.say_wait, self.timeout_s / SAYS)
                self.line.send(Ack(self.service.weights.version, 1, 1))
                return

    def say_wait(self) -> None:
        """Nobody hears from a server that waits."""
        with self._speaking:
            self.line.send(Wait())

    def ask(self, what: int, step: int) -> Tensor:
        """What the thread answers, which must be waiting; uint8."""
        with self._speaking:
            self.line.send(Ask(what, step))
            answer = _expected(self.line.receive(), Answer)
            return self.line.take(torch.empty(answer.nbytes, dtype=torch.uint8))

    def _welcome(self, hello: Hello) -> None:
        entries, service = self.service.weights.flat.numel(), self.service
        if hello.entries != entries or hello.rank not in range(service.workers):
            self.line.send(Refusal(entries))
            raise ProtocolError(
                f"a trainer of rank {hello.rank} has a model of {hello.entries} parameters; ranks "
                f"are in [0, {service.workers}) and the server's has {entries}"
            )
        self.rank, self.thread = hello.rank, hello.thread
        service.gate.come_in(self, self.say_wait, self.timeout_s / SAYS)
        self.line.send(Welcome(service.first_step(self.rank)))
        service.joined(self)

    def _send_weights(self) -> None:
        weights = self.service.weights
        version, content = weights.version, weights.flat
        if self.service.consistent_pull:
            with weights.lock:
                version, content = weights.version, weights.flat.clone()
        self.line.send(Weights(version), content)

    def _take_in(self, push: Push) -> None:
        piece = self._received(push)
        accepted, may = self.service.take_in(self, push, piece)
        gate = self.service.gate
        gate.pass_through(self, may, self.say_wait, self.timeout_s / SAYS)
        ends = int(self.service.ends)
        self.line.send(Ack(self.service.weights.version, int(accepted), ends))

    def _received(self, push: Push) -> Piece:
        """What follows `push`."""
        n = self.service.weights.flat.numel()
        dense = push.index_bytes == 0
        fits = push.entries == n if dense else 0 <= push.entries <= n
        if not fits or not (dense or push.index_bytes in INDEX_TYPES):
            self.service.refuse(self, push, "size")
            raise ProtocolError(f"{push} does not fit a model of {n} parameters")
        values = self.line.take(torch.empty(push.entries))
        if dense:
            return Piece(values, None)
        index = torch.empty(push.entries, dtype=INDEX_TYPES[push.index_bytes])
        return Piece(values, self.line.take(index))

    def bytes_since_push(self) -> tuple[int, int]:
        """Up and down, since the last call."""
        before = self._bytes_before
        now = self._bytes_before = self.line.received_bytes, self.line.sent_bytes
        return now[0] - before[0], now[1] - before[1]


def _expected(message: Message, kind: type[M]) -> M:
    if not isinstance(message, kind):
        raise ProtocolError(f"expected {kind.__name__}, got {message}")
    return message
