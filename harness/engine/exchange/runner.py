"""The thread that goes through the buckets of a rank, each as far as its turn lets it."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor
from torch.futures import Future

from controllers.base import Observation
from harness.clock import Clock
from harness.engine.exchange.fiber import Fiber
from harness.engine.exchange.order import in_turn
from harness.engine.exchange.passage import Passage
from harness.engine.exchange.reduction import Reduction
from harness.engine.exchange.stream import Stream
from harness.engine.exchange.tally import Tally
from harness.engine.exchange.wire import CollectiveThread
from harness.engine.exchange.workers import Workers

# What compression of a bucket with these gradients, at this density, takes on an emulated device.
Charge = Callable[[list[Tensor], float], float]


class Opening(NamedTuple):
    """An exchange begins, with the choice of its density."""

    step: int
    seen: Observation | None  # the exchange before
    durations_s: list[float] | None  # of its collectives, emulated
    tally: Tally
    ahead: int  # buckets that are started before the first is come back to


class BucketJob(NamedTuple):
    """Work of an exchange on one bucket."""

    number: int  # in its exchange
    buffer: Tensor  # [n]; the mean gradient is written here
    names: tuple[str, ...]
    gradients: list[Tensor]  # views of buffer by parameter
    parameters: Sequence[Tensor]  # that are trained, in the same order; may be none
    handed: float  # when, on the clock
    part_s: float | None  # that its part of backward takes; None: until it was handed over
    last: bool
    future: Future
    ready_event: Any  # CUDA event after which buffer holds the gradient, None on the CPU


class Started(NamedTuple):
    """A bucket, and where it runs."""

    job: BucketJob
    fiber: Fiber


@dataclass
class Runner:
    """Owns the threads of an exchange. Tasks are openings, and buckets to be started, in order.

    Up to one bucket runs at any time; collectives go on beside it. After a failure, `error`, every
    bucket fails with it.
    """

    reduction: Reduction
    workers: Workers
    clock: Clock
    charge: Charge | None  # on the clock; None: compression takes what it takes here
    error: BaseException | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._tasks: queue.SimpleQueue[Opening | list[BucketJob] | None] = queue.SimpleQueue()
        self._stream = Stream(self.workers.device)
        self._wire = CollectiveThread(self.workers, self.clock)
        self._fibers: list[Fiber] = []
        self._idle: deque[Fiber] = deque()
        self._unsettled: deque[BucketJob] = deque()  # those whose future waits
        self._thread = threading.Thread(target=self._serve, name="exchange", daemon=True)
        self._thread.start()

    def put(self, task: Opening | list[BucketJob]) -> None:
        self._tasks.put(task)

    def close(self, join_s: float) -> bool:
        """Finish what there is, end all threads; whether they did within `join_s`."""
        self._tasks.put(None)
        self._thread.join(join_s)
        return not self._thread.is_alive()

    # Called by the thread.

    def _serve(self) -> None:
        with self._stream.entered():
            try:
                while (task := self._tasks.get()) is not None:
                    assert isinstance(task, Opening), "a bucket comes without an exchange"
                    self._perform(task)
                    del task  # do not keep the last tally alive while waiting for the next
            except BaseException as error:  # whatever it is, backward must not wait for ever
                self.error = error
                self._fail(error)
        for fiber in self._fibers:
            fiber.close()
        self._wire.close()

    def _fail(self, error: BaseException) -> None:
        task: Opening | list[BucketJob] | None = [*self._unsettled]
        while task is not None:
            for job in task if isinstance(task, list) else []:
                job.future.set_exception(error)  # type: ignore[arg-type]
            task = self._tasks.get()

    def _perform(self, opening: Opening) -> None:
        tally = opening.tally
        choose = partial(self.reduction.open, opening.seen, opening.durations_s)
        opened = self._wire.post(choose, tally.clocks.begin_s)
        opened.result()
        tally.opened(opened.spans)
        buckets = self._arriving(tally)
        for starts, started in in_turn(buckets, opening.ahead):
            (self._start if starts else self._go_on)(started, opening)

    def _arriving(self, tally: Tally) -> Iterator[Started]:
        """The buckets of an exchange, as they come."""
        while (jobs := self._tasks.get()) is not None:
            assert isinstance(jobs, list), "an exchange begins before the last bucket of another"
            self._unsettled.extend(jobs)
            for job in jobs:
                tally.computed(job.number, job.handed, job.part_s, job.last)
            for job in jobs:
                tally.computes = len(jobs) == 1 and not job.last
                yield Started(job, self._fiber())
            if jobs[-1].last:
                return
        self._tasks.put(None)  # for who serves

    def _fiber(self) -> Fiber:
        """Take a free fiber, in every exchange the same for a bucket, whose memory it has."""
        if not self._idle:
            self._fibers.append(Fiber(self._stream.entered))
            return self._fibers[-1]
        return self._idle.popleft()

    def _start(self, started: Started, opening: Opening) -> None:
        job, tally = started.job, opening.tally
        density = self.reduction.density
        seconds = self.charge(job.gradients, density) if self.charge else None
        tally.begins()
        if seconds is None:  # what takes as long as here is not begun before its time
            self.clock.sleep_until(tally.clocks.now_s)
        self._stream.follow(job.ready_event, job.buffer)
        told_s = None if seconds is None else deque(self.reduction.phases_s(seconds))
        passage = Passage(
            job.number, self._wire, tally, self.clock, self._stream, started.fiber.pause, told_s
        )
        started.fiber.start(partial(self._reduce, opening.step, job, passage))

    def _reduce(self, step: int, job: BucketJob, passage: Passage) -> None:
        passage.begin()
        self.reduction.reduce(
            step, job.number, job.names, job.gradients, job.buffer, job.parameters, passage
        )
        passage.end()

    def _go_on(self, started: Started, opening: Opening) -> None:
        started.fiber.go_on()
        self._idle.append(started.fiber)
        if started.job.last:  # backward waits for it, and so ends on time
            self.clock.sleep_until(opening.tally.clocks.end_s)
        job = self._unsettled.popleft()
        job.future.set_result(job.buffer)  # on our stream, which the future remembers
