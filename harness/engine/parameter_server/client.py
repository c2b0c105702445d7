"""A trainer's side of a connection to the server: it sends a request and waits for the answer."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from harness.engine.parameter_server.captured import Contribution
from harness.engine.parameter_server.messages import (
    Ack,
    Answer,
    Ask,
    Finish,
    Hello,
    M,
    Pull,
    Push,
    Settle,
    Settled,
    Weights,
    Welcome,
    expect,
)
from harness.engine.parameter_server.transport import MessageConnection


@dataclass
class Client:
    """One trainer thread's connection; all methods raise ConnectionLost if the server is gone."""

    connection: MessageConnection
    answer: Callable[[Ask], Tensor]  # uint8 [bytes], to a question of the server
    aside_bytes: tuple[int, int] = (0, 0)  # sent and received for questions of the server
    waited: float = 0.0  # seconds of waiting for other trainers, on the clock

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes sent and received so far, without those for questions."""
        sent, received = self.aside_bytes
        return self.connection.sent_bytes - sent, self.connection.received_bytes - received

    def hello(self, rank: int, thread: int, entries: int) -> int:
        """Introduce this thread, whose model has `entries` parameters; return its first step."""
        self.connection.send(Hello(rank, thread, entries))
        return self._reply(Welcome).step

    def pull(self, room: Tensor) -> int:
        """Fill `room`, float32 [n], with the weights; return their version."""
        self.connection.send(Pull())
        version = self._reply(Weights).version
        self.connection.take(room)
        return version

    def push(self, push: Push, content: Contribution) -> Ack:
        """Send a gradient; return the answer once the thread's next step may begin."""
        self.connection.send(push, content.layout(), *content.tensors())
        ack = self._reply(Ack)
        self.waited += ack.waited
        return ack

    def settle(self, value: float, how: str) -> float:
        """Return the minimum (`how` "min") or mean of all trainers' values; all must call it."""
        self.connection.send(Settle(value, int(how == "min")))
        settled = self._reply(Settled)
        self.waited += settled.waited
        return settled.value

    def done(self) -> None:
        """Report that no steps are left; return once all trainers are done."""
        self.connection.send(Finish())
        self._reply(Ack)

    def _reply(self, kind: type[M]) -> M:
        """Return the server's reply, of type `kind`; until then answer the server's questions."""
        while True:
            before = self.bytes
            message = self.connection.receive()
            if not isinstance(message, Ask):
                return expect(message, kind)
            content = self.answer(message)
            self.connection.send(Answer(content.numel()), content)
            sent, received = (now - then for now, then in zip(self.bytes, before, strict=True))
            self.aside_bytes = self.aside_bytes[0] + sent, self.aside_bytes[1] + received
