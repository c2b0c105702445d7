"""A trainer: threads that share a stream of batches, a residual and its thresholds."""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.clock import Clock
from harness.data.base import Batch
from harness.parameter_server.client import Client
from harness.parameter_server.flat import buffers_of
from harness.parameter_server.line import Line, LineLost
from harness.parameter_server.messages import BUFFERS, Ask
from harness.parameter_server.replica import Replica
from harness.records import Events, Table


class ServerLost(RuntimeError):
    """The server is gone: this trainer has nobody to train with."""


@dataclass
class Trainer:
    """Steps are given out in order, each to the thread that asks first; none is given out again."""

    rank: int
    replicas: list[Replica]  # by thread
    batches: Callable[[int], Iterator[Batch]]  # from a step on
    steps: int
    clock: Clock
    join: Callable[[], Line]  # a new session
    may_rejoin: bool
    save: Callable[[int], Tensor]  # write this rank's part of a checkpoint; uint8
    table: Table
    events: Events
    cores: int = 1  # for each thread's computation
    done: int = field(default=0, init=False)  # steps that were acknowledged
    overruns: int = field(default=0, init=False)
    aside_bytes: list[int] = field(default_factory=lambda: [0, 0], init=False)  # in no step's row

    def __post_init__(self) -> None:
        self._lock = threading.Lock()  # of what is given out, and of counts
        self._ended: queue.Queue[BaseException | None] = queue.Queue()

    def run(self) -> None:
        """Until every step is done, or the server says that the run ends. ServerLost."""
        firsts = [self._join(thread) for thread in range(len(self.replicas))]
        self._next, self._batches = firsts[0], self.batches(firsts[0])
        threads = [
            threading.Thread(target=self._work, args=(thread,), daemon=True)
            for thread in range(len(self.replicas))
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            if (failure := self._ended.get()) is not None:
                raise failure
        for thread in threads:
            thread.join()

    def _join(self, thread: int) -> int:
        replica = self.replicas[thread]

        def answer(ask: Ask) -> Tensor:
            return buffers_of(replica.model) if ask.what == BUFFERS else self.save(ask.step)

        try:
            return replica.join(Client(self.join(), answer), thread)
        except LineLost as error:
            raise ServerLost(f"the parameter server cannot be reached: {error}") from error

    def _work(self, thread: int) -> None:
        try:
            torch.set_num_threads(self.cores)  # a thread has a number of its own, which rounds
            self.clock.wait_running()
            self._train(thread)
            self._ended.put(None)
        except BaseException as error:
            self._ended.put(error)

    def _train(self, thread: int) -> None:
        replica, counted = self.replicas[thread], [0, 0]
        while (given := self._given()) is not None:
            step, batch = given
            try:
                row, ack, overran, drained = replica.step(step, batch)
            except LineLost as error:
                self._put_aside(replica.client, counted)
                self._rejoin(thread, step, error)
                counted = [0, 0]
                continue
            counted[0] += row.sent_bytes
            counted[1] += row.received_bytes
            self._note(row.time_s, overran, drained, step)
            self.table.append(row)
            if ack.ends:
                break
        replica.client.done()
        self._put_aside(replica.client, counted)

    def _given(self) -> tuple[int, Batch] | None:
        with self._lock:
            if self._next >= self.steps:
                return None
            self._next += 1
            return self._next - 1, next(self._batches)

    def _note(self, time_s: float, overran: bool, drained: list[str], step: int) -> None:
        with self._lock:
            self.done += 1
            self.overruns += overran
        for name in drained:
            self.events.append("drain", time_s, rank=self.rank, step=step, parameter=name)

    def _rejoin(self, thread: int, step: int, error: LineLost) -> None:
        """Come back after the server has given this thread up; `step` is lost, if not applied."""
        if not self.may_rejoin:
            raise ServerLost(f"the parameter server has ended the session: {error}") from error
        self.events.append("rejoins", rank=self.rank, thread=thread, step=step, error=str(error))
        try:
            self._join(thread)
        except ServerLost as gone:
            raise ServerLost(f"{gone}, after {error}") from error

    def _put_aside(self, client: Client, counted: list[int]) -> None:
        """What was sent and received beside steps that have rows."""
        line = client.line
        with self._lock:
            self.aside_bytes[0] += max(0, line.confirmed_bytes - counted[0])
            self.aside_bytes[1] += line.received_bytes - counted[1]
