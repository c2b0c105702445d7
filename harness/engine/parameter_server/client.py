"""A trainer's side of a session: pull, push, done; each waits for its answer."""

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
    Message,
    ProtocolError,
    Pull,
    Push,
    Settle,
    Settled,
    Wait,
    Weights,
    Welcome,
)
from harness.engine.parameter_server.transport import MessageConnection


@dataclass
class Client:
    """Client of one thread. ConnectionLost when the server is gone, or has closed the session.

    What was pushed without an Ack may have been applied or not: it must not be pushed again.
    """

    connection: MessageConnection
    answer: Callable[[Ask], Tensor]  # uint8
    aside_bytes: tuple[int, int] = (0, 0)  # sent and received for questions, the clock stopped
    waited: float = 0.0  # for other trainers, on the clock

    @property
    def bytes(self) -> tuple[int, int]:
        """Sent and received so far, without those."""
        sent, received = self.aside_bytes
        return self.connection.sent_bytes - sent, self.connection.received_bytes - received

    def hello(self, rank: int, thread: int, entries: int) -> int:
        """Introduce this thread, whose model has so many parameters; its rank's first step."""
        self.connection.send(Hello(rank, thread, entries))
        reply = self._reply()
        if not isinstance(reply, Welcome):
            raise ProtocolError(f"rank {rank}, with {entries} parameters, is refused: {reply}")
        return reply.step

    def pull(self, room: Tensor) -> int:
        """Fill `room`, float32 [n], with the weights; their version."""
        self.connection.send(Pull())
        reply = self._reply()
        if not isinstance(reply, Weights):
            raise ProtocolError(f"expected Weights, got {reply}")
        self.connection.take(room)
        return reply.version

    def push(self, push: Push, content: Contribution) -> Ack:
        """Send a gradient; returns once the next step may begin."""
        self.connection.send(push, content.layout(), *content.tensors())
        return self._acknowledged()

    def settle(self, value: float, how: str) -> float:
        """Agree with all trainers on the `min` or `mean` of their values."""
        self.connection.send(Settle(value, int(how == "min")))
        reply = self._reply()
        if not isinstance(reply, Settled):
            raise ProtocolError(f"expected Settled, got {reply}")
        self.waited += reply.waited
        return reply.value

    def done(self) -> None:
        """Tell that this was the last; returns once all are done."""
        self.connection.send(Finish())
        self._acknowledged()

    def _acknowledged(self) -> Ack:
        reply = self._reply()
        if not isinstance(reply, Ack):
            raise ProtocolError(f"expected Ack, got {reply}")
        self.waited += reply.waited
        return reply

    def _reply(self) -> Message:
        """Wait for the reply; answer the server's questions in between."""
        while True:
            before = self.bytes
            message = self.connection.receive()
            if isinstance(message, Ask):
                content = self.answer(message)
                self.connection.send(Answer(content.numel()), content)
                now, aside = self.bytes, self.aside_bytes
                self.aside_bytes = (
                    aside[0] + now[0] - before[0],
                    aside[1] + now[1] - before[1],
                )
            elif not isinstance(message, Wait):
                return message
