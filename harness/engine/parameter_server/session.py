"""The server's side of a connection to one trainer thread: it answers requests in order."""

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.parameter_server.captured import COLUMNS, Contribution, read
from harness.engine.parameter_server.messages import (
    Ack,
    Answer,
    Ask,
    Finish,
    Hello,
    ProtocolError,
    Pull,
    Push,
    Settle,
    Settled,
    Weights,
    Welcome,
    expect,
)
from harness.engine.parameter_server.parameter_store import ParameterStore, TrainerThread

MOST_ANSWER_BYTES = 1 << 30  # buffers of a model; those of ResNet-50 have 0.2 MiB
MOST_BYTES = 16  # of a push, per parameter
MOST_EMPTY = 64  # allowance per bucket, in tensors and in parameters


@dataclass(eq=False, kw_only=True)
class Session(TrainerThread):
    """A connected trainer thread.

    Every method raises ConnectionLost if the thread is gone, and ProtocolError if it sends invalid
    data, of which nothing has been applied.
    """

    store: ParameterStore

    def greet(self) -> None:
        """Check the thread's identity, answer with its first step; ProtocolError if unfit."""
        hello, store = expect(self.connection.receive(), Hello), self.store
        entries, threads = store.model.vector.numel(), store.layout.threads
        known = hello.rank in range(store.workers) and hello.thread in range(threads)
        if hello.entries != entries or not known:
            raise ProtocolError(
                f"thread {hello.thread} of rank {hello.rank} has a model of {hello.entries} "
                f"parameters; ranks are in [0, {store.workers}), threads in [0, "
                f"{threads}) and the server's has {entries}"
            )
        self.rank, self.thread = hello.rank, hello.thread
        self.connection.send(Welcome(int(store.pushed[self.rank])))

    def serve(self) -> None:
        """Answer the thread's requests from the start of training until it has no more steps."""
        store, clock = self.store, self.store.clock
        clock.wait_running()  # no timeout: other ranks may take long to get ready
        while True:
            message = self.connection.receive()
            began = clock.now()
            if isinstance(message, Pull):
                self.connection.send(Weights(store.model.version), store.model.vector)
            elif isinstance(message, Push):
                content = self._content(message)
                began = clock.now()
                store.push(self, message, content)
                self.connection.send(Ack(int(store.ends), clock.now() - began))
            elif isinstance(message, Settle):
                value = store.settle(self, message)
                self.connection.send(Settled(value, clock.now() - began))
            else:
                expect(message, Finish)
                store.finish(self)
                self.connection.send(Ack(1, 0.0))
                return

    def ask(self, what: int, step: int) -> Tensor:
        """Ask for BUFFERS or SAVE; return the answer, uint8 [bytes]. ProtocolError if too large."""
        self.connection.send(Ask(what, step))
        answer = expect(self.connection.receive(), Answer)
        if not 0 <= answer.nbytes <= MOST_ANSWER_BYTES:
            raise ProtocolError(f"an answer has 0 to {MOST_ANSWER_BYTES} bytes, got {answer}")
        return self.connection.take(torch.empty(answer.nbytes, dtype=torch.uint8))

    def _content(self, push: Push) -> Contribution:
        """Receive the gradient that follows `push`; ProtocolError if it does not fit the model."""
        model, rows = self.store.model, push.tensors
        n, buckets = model.vector.numel(), len(model.flat.buckets)
        if not 0 <= rows <= n + MOST_EMPTY * buckets or not 0 < push.density <= 1:
            raise ProtocolError(f"{push} does not fit a model of {n} parameters")
        layout = self.connection.take(torch.empty(COLUMNS * rows, dtype=torch.int64))
        room = read(layout, buckets, MOST_BYTES * n + MOST_EMPTY * MOST_BYTES * buckets)
        taken = [[tuple(map(self.connection.take, call)) for call in calls] for calls in room]
        return Contribution(push.step, push.density, taken)
