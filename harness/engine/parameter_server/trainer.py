"""A trainer: threads that share a stream of batches, a residual and its thresholds."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from controllers.base import Observation
from harness.engine.parameter_server.client import Client
from harness.engine.parameter_server.connection import ConnectionLost
from harness.engine.parameter_server.exchange import Pushing
from harness.engine.parameter_server.messages import BUFFERS, Ask
from harness.engine.parameter_server.server_model import buffers_of
from harness.engine.parameter_server.transport import Transport
from harness.engine.training.rest import Save
from harness.engine.training.together import Together
from harness.engine.training.train import Loop
from harness.records.checkpoint import Files


class ServerLost(RuntimeError):
    """The server is gone or cannot be reached."""


@dataclass
class Served(Together):
    """One thread of a trainer; the server stops the clock, evaluates and saves for all."""

    clock: Any  # a harness.clock.Clock
    loop: Loop = field(init=False)
    exchange: Pushing = field(init=False)
    save: Save = field(init=False)
    _files: Files = field(default_factory=dict, init=False)  # of the last checkpoint

    def begin(self) -> float:
        self.clock.wait_running()
        return self.clock.now()

    def gather(self, mine: Files) -> list[Files]:
        self._files = mine
        return [mine]

    def ends(self, done: int, seen: Observation) -> bool | None:
        """Return True if the answer to the last push ended the run, else None."""
        return self.exchange.ends or None

    def train(self) -> None:
        """Train to the last step, then wait until all trainers are done."""
        self.loop.run()
        client = self.exchange.client
        client.done()
        sent, received = self.exchange.bytes  # all other bytes belong to no row of steps.csv
        self.loop.aside_bytes[0] += client.connection.sent_bytes - sent
        self.loop.aside_bytes[1] += client.connection.received_bytes - received

    def answer(self, ask: Ask) -> Tensor:
        """Return the model's buffers, or name and digest of a checkpoint file, as uint8."""
        gradients: Any = self.loop.gradients
        if ask.what == BUFFERS:
            return buffers_of(gradients.model)
        self.save(ask.step, self.exchange.seen)
        [(name, digest)] = self._files.items()
        return torch.frombuffer(bytearray(f"{name} {digest}".encode()), dtype=torch.uint8)


@dataclass
class Trainer:
    """The threads of a rank; each takes the rank's next step and batch when it is free."""

    threads: list[Served]
    transport: Transport
    start_s: float  # limit to reach a server that may not listen yet

    def __post_init__(self) -> None:
        self._lock = threading.Lock()  # guards the next step and the batches
        self.loops = [thread.loop for thread in self.threads]
        self._steps: Any = self.loops[0].steps
        for loop in self.loops:
            loop.steps = self._taken(loop)

    @property
    def done(self) -> int:
        """Number of steps that the server has acknowledged."""
        return sum(loop.done - loop.first for loop in self.loops)

    @property
    def overruns(self) -> int:
        return sum(loop.overruns for loop in self.loops)

    @property
    def aside_bytes(self) -> list[int]:
        return [sum(loop.aside_bytes[way] for loop in self.loops) for way in range(2)]

    def run(self) -> int:
        """Train until every step is done or the server ends the run.

        Return the number of steps longer than their pace. Raise ServerLost if the server is gone.
        """
        try:
            for thread in self.threads:
                client = Client(self.transport.join(self.start_s), thread.answer)
                self._next = thread.exchange.join(client)
            self._batches = self.loops[0].gradients.course.batches(self._next)
            self.transport.together([thread.train for thread in self.threads])
        except ConnectionLost as error:
            raise ServerLost(f"the parameter server is lost: {error}") from error
        return self.overruns

    def close(self) -> None:
        return None

    def _taken(self, loop: Loop) -> Iterator[int]:
        """Yield the steps that one thread takes, and give its gradients the batch of each."""
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
