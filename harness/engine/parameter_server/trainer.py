"""A trainer: threads that share a stream of batches, a residual and its thresholds."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from controllers.base import Observation
from harness.engine.parameter_server.client import Client
from harness.engine.parameter_server.connection import ConnectionLost
from harness.engine.parameter_server.exchange import Pushing
from harness.engine.parameter_server.flat_parameters import buffers_of
from harness.engine.parameter_server.messages import BUFFERS, Ask
from harness.engine.parameter_server.transport import MessageConnection, Transport
from harness.engine.training.rest import Save
from harness.engine.training.together import Together
from harness.engine.training.train import Loop
from harness.records.checkpoint import Files
from harness.records.run_directory import Events

REJOIN_S = 2.0  # to reach a server that was there; a run waits longer for the others' reports


class ServerLost(RuntimeError):
    """The server is gone: this trainer has nobody to train with."""


@dataclass
class Served(Together):
    """One thread. The server stops all, and writes for all."""

    clock: Any  # a harness.clock.Clock
    loop: Loop = field(init=False)
    exchange: Pushing = field(init=False)
    save: Save = field(init=False)
    _files: Files = field(default_factory=dict, init=False)  # that were written last

    def begin(self) -> float:
        self.clock.wait_running()
        return self.clock.now()

    def gather(self, mine: Files) -> list[Files]:
        self._files = mine
        return [mine]

    def ends(self, done: int, seen: Observation) -> bool | None:
        """As the server has said in its answer to a push."""
        return self.exchange.ends or None

    def join(self, connection: MessageConnection) -> int:
        """A session with the server; the first step that this rank has not pushed."""
        return self.exchange.join(Client(connection, self._answer))

    def done(self) -> None:
        """There are no more steps; returns once all are done."""
        self.exchange.client.done()
        self.put_aside()

    def put_aside(self) -> None:
        """Count the bytes of this session that belong to no step with a row."""
        connection, (sent, received) = self.exchange.client.connection, self.exchange.bytes
        self.loop.aside_bytes[0] += max(0, connection.confirmed_bytes - sent)
        self.loop.aside_bytes[1] += connection.received_bytes - received

    def _answer(self, ask: Ask) -> Tensor:
        """To the server: buffers of the model, or the name and digest of what was saved; uint8."""
        gradients: Any = self.loop.gradients
        if ask.what == BUFFERS:
            return buffers_of(gradients.model)
        self.save(ask.step, self.exchange.seen)
        [(name, digest)] = self._files.items()
        return torch.frombuffer(bytearray(f"{name} {digest}".encode()), dtype=torch.uint8)


@dataclass
class Trainer:
    """Steps are given out in order, each to the thread that asks first; none is given out again."""

    rank: int
    threads: list[Served]
    transport: Transport
    start_s: float  # to reach a server that may not be there yet
    may_rejoin: bool
    events: Events

    def __post_init__(self) -> None:
        self._lock = threading.Lock()  # of what is given out
        self.loops = [thread.loop for thread in self.threads]
        self._steps: Any = self.loops[0].steps
        for loop in self.loops:
            loop.steps = self._given(loop)

    @property
    def done(self) -> int:
        """Steps that were acknowledged."""
        return sum(loop.done - loop.first for loop in self.loops)

    @property
    def overruns(self) -> int:
        return sum(loop.overruns for loop in self.loops)

    @property
    def aside_bytes(self) -> list[int]:
        return [sum(loop.aside_bytes[way] for loop in self.loops) for way in range(2)]

    def run(self) -> int:
        """Until every step is done, or the server says that the run ends. ServerLost."""
        self._next = [self._join(thread, self.start_s) for thread in self.threads][0]
        self._batches = self.loops[0].gradients.course.batches(self._next)
        self.transport.together([partial(self._train, thread) for thread in self.threads])
        return self.overruns

    def close(self) -> None:
        return None

    def _join(self, thread: Served, reach_s: float) -> int:
        try:
            return thread.join(self.transport.join(reach_s))
        except ConnectionLost as error:
            raise ServerLost(f"the parameter server cannot be reached: {error}") from error

    def _train(self, thread: Served) -> None:
        while True:
            try:
                thread.loop.run()
                return thread.done()
            except ConnectionLost as error:
                thread.put_aside()
                self._rejoin(thread, error)

    def _given(self, loop: Loop) -> Iterator[int]:
        """The steps that a thread asks for, each with its batch."""
        exchange: Any = loop.exchange
        gradients: Any = loop.gradients
        while True:
            with self._lock:
                exchange.step = self._next
                if exchange.step >= self._steps.stop:
                    return
                self._next += 1
                gradients.batches = iter([next(self._batches)])
            yield exchange.step

    def _rejoin(self, thread: Served, error: ConnectionLost) -> None:
        """Come back after the server has given this thread up; its step is lost, if not applied."""
        if not self.may_rejoin:
            raise ServerLost(f"the parameter server has ended the session: {error}") from error
        exchange = thread.exchange
        told = {"rank": self.rank, "thread": exchange.thread, "step": exchange.step}
        self.events.append("rejoins", **told, error=str(error))
        try:
            self._join(thread, REJOIN_S)
        except ServerLost as gone:
            raise ServerLost(f"{gone}, after {error}") from error
