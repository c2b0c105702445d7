"""One thread of the server for one thread of a trainer: what is asked for, in its order."""

import threading
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from harness.engine.parameter_server.captured import COLUMNS, Contribution, read
from harness.engine.parameter_server.messages import (
    Ack,
    Answer,
    Ask,
    Finish,
    Hello,
    Message,
    ProtocolError,
    Pull,
    Push,
    Refusal,
    Settle,
    Settled,
    Wait,
    Weights,
    Welcome,
)
from harness.engine.parameter_server.parameter_store import ParameterStore
from harness.engine.parameter_server.transport import MessageConnection

SAYS = 3  # times within the timeout that a thread which waits is told so
M = TypeVar("M", bound=Message)
MOST_ANSWER_BYTES = 1 << 30  # buffers of a model; those of ResNet-50 have 0.2 MiB
MOST_BYTES = 16  # of a push, for each parameter
MOST_EMPTY = 64  # tensors, and parameters, that a bucket may have more than that


@dataclass(eq=False)
class Session:
    """Session of the trainer thread behind `connection`; unidentified before Hello."""

    store: ParameterStore
    connection: MessageConnection
    timeout_s: float
    rank: int = -1
    thread: int = -1
    _speaking: threading.Lock = field(default_factory=threading.Lock, init=False)
    _bytes_before: tuple[int, int] = field(default=(0, 0), init=False)

    def serve(self) -> None:
        """Serve until the thread has no more steps. ConnectionLost, ProtocolError: ended before."""
        self._welcome(_expected(self.connection.receive(), Hello))
        while True:
            message = self.connection.receive()
            if isinstance(message, Pull):
                self._send_weights()
            elif isinstance(message, Push):
                self._take_in(message)
            elif isinstance(message, Settle):
                self._settle(message)
            else:
                _expected(message, Finish)
                self.store.gate.finish(self, self.say_wait, self.timeout_s / SAYS)
                self.connection.send(Ack(self.store.weights.version, 1, 1, 0.0))
                return

    def say_wait(self) -> None:
        """Nobody hears from a server that waits."""
        with self._speaking:
            self.connection.send(Wait())

    def ask(self, what: int, step: int) -> Tensor:
        """Ask the thread, which must be waiting; its answer, uint8 [bytes]."""
        with self._speaking:
            self.connection.send(Ask(what, step))
            answer = _expected(self.connection.receive(), Answer)
            if not 0 <= answer.nbytes <= MOST_ANSWER_BYTES:
                raise ProtocolError(f"an answer has 0 to {MOST_ANSWER_BYTES} bytes, got {answer}")
            return self.connection.take(torch.empty(answer.nbytes, dtype=torch.uint8))

    def _welcome(self, hello: Hello) -> None:
        entries, store = self.store.weights.vector.numel(), self.store
        threads = store.layout.threads
        known = hello.rank in range(store.workers) and hello.thread in range(threads)
        if hello.entries != entries or not known:
            self.connection.send(Refusal(entries))
            raise ProtocolError(
                f"thread {hello.thread} of rank {hello.rank} has a model of {hello.entries} "
                f"parameters; ranks are in [0, {store.workers}), threads in [0, "
                f"{threads}) and the server's has {entries}"
            )
        self.rank, self.thread = hello.rank, hello.thread
        store.gate.enter(self, self.say_wait, self.timeout_s / SAYS)
        self.connection.send(Welcome(store.first_step(self.rank)))
        store.joined(self)

    def _send_weights(self) -> None:
        weights = self.store.weights
        version, content = weights.version, weights.vector
        if self.store.layout.consistent_pull:
            with weights.lock:
                version, content = weights.version, weights.vector.clone()
        self.connection.send(Weights(version), content)

    def _take_in(self, push: Push) -> None:
        content, clock = self._received(push), self.store.clock
        began = clock.now()
        accepted, may = self.store.take_in(self, push, content)
        gate = self.store.gate
        gate.wait_turn(self, may, self.say_wait, self.timeout_s / SAYS)
        version, ends = self.store.weights.version, int(self.store.ends)
        self.connection.send(Ack(version, int(accepted), ends, clock.now() - began))

    def _settle(self, asked: Settle) -> None:
        began = self.store.clock.now()
        settling = self.store.settle(self, asked)
        every_s = self.timeout_s / SAYS
        self.store.gate.wait_for(lambda: settling.value is not None, self.say_wait, every_s)
        assert settling.value is not None
        self.connection.send(Settled(settling.value, self.store.clock.now() - began))

    def _received(self, push: Push) -> Contribution:
        """Receive the contribution that follows `push`."""
        weights, rows = self.store.weights, push.tensors
        n, buckets = weights.vector.numel(), len(weights.flat.buckets)
        if not 0 <= rows <= n + MOST_EMPTY * buckets or not 0 < push.density <= 1:
            self.store.refuse(self, push, "size")
            raise ProtocolError(f"{push} does not fit a model of {n} parameters")
        layout = self.connection.take(torch.empty(COLUMNS * rows, dtype=torch.int64))
        room = read(layout, buckets, MOST_BYTES * n + MOST_EMPTY * MOST_BYTES * buckets)
        taken = [[tuple(map(self.connection.take, call)) for call in calls] for calls in room]
        return Contribution(push.step, push.density, taken)

    def bytes_since_push(self) -> tuple[int, int]:
        """Up and down, since the last call."""
        before = self._bytes_before
        now = self._bytes_before = self.connection.received_bytes, self.connection.sent_bytes
        return now[0] - before[0], now[1] - before[1]


def _expected(message: Message, kind: type[M]) -> M:
    if not isinstance(message, kind):
        raise ProtocolError(f"expected {kind.__name__}, got {message}")
    return message
