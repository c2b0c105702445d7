"""The thread that goes through the buckets of a rank, each as far as its turn lets it."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from setproctitle import setthreadtitle
from torch.futures import Future

from controllers.base import Observation
from harness.clock import Clock
from harness.engine.exchange.exchange_stats import ExchangeStats
from harness.engine.exchange.fiber import Fiber
from harness.engine.exchange.lane_workers import LaneWorkers
from harness.engine.exchange.order import in_turn
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.engine.exchange.stream import Stream
from harness.engine.exchange.wire import CollectiveThread
from harness.engine.exchange.workers import Workers

# What compression of a bucket, at this density and in this step, takes on an emulated device.
Charge = Callable[[BucketBuffers, float, int], float]


class ExchangeStart(NamedTuple):
    """An exchange begins, with the choice of its density."""

    step: int
    seen: Observation | None  # the exchange before
    durations_s: list[float] | None  # of its collectives, emulated
    stats: ExchangeStats
    ahead: int  # buckets that are started before the first is come back to


class BucketJob(NamedTuple):
    """Work of an exchange on one bucket."""

    number: int  # in its exchange
    laid: BucketBuffers
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
    """Owns the threads of an exchange. Tasks are exchanges and buckets to start, in order.

    Up to one bucket runs at any time; collectives go on beside it. After a failure, `error`, every
    bucket fails with it.
    """

    reduction: Reduction
    workers: Workers
    clock: Clock
    charge: Charge | None  # on the clock; None: compression takes what it takes here
    error: BaseException | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._tasks: queue.SimpleQueue[ExchangeStart | list[BucketJob] | None] = queue.SimpleQueue()
        self._stream = Stream(self.workers.device)
        self._wire = CollectiveThread(self.workers, self.clock)
        self._fibers: list[Fiber] = []
        self._idle: deque[Fiber] = deque()
        self._unsettled: deque[BucketJob] = deque()  # those whose future waits
        self._thread = threading.Thread(target=self._serve, name="exchange", daemon=True)
        self._thread.start()

    def put(self, task: ExchangeStart | list[BucketJob]) -> None:
        self._tasks.put(task)

    def agree(self, value: float, how: str) -> float:
        """One value for all workers, by the network lane while no exchange goes on."""
        asks = partial(self.workers.agree, value, how)
        return float(self._wire.post(asks, self.clock.now()).result())

    def close(self, join_s: float) -> bool:
        """Finish what there is, end all threads; whether they did within `join_s`."""
        self._tasks.put(None)
        self._thread.join(join_s)
        return not self._thread.is_alive()

    # Called by the thread.

    def _serve(self) -> None:
        setthreadtitle("exchange")  # by which harness.runner.priority finds it
        with self._stream.entered():
            try:
                while (task := self._tasks.get()) is not None:
                    assert isinstance(task, ExchangeStart), "a bucket comes without an exchange"
                    self._perform(task)
                    del task  # do not keep the last exchange alive while waiting for the next
            except BaseException as error:  # whatever it is, backward must not wait for ever
                self.error = error
                self._fail(error)
        for fiber in self._fibers:
            fiber.close()
        self._wire.close()

    def _fail(self, error: BaseException) -> None:
        task: ExchangeStart | list[BucketJob] | None = [*self._unsettled]
        while task is not None:
            for job in task if isinstance(task, list) else []:
                job.future.set_exception(error)  # type: ignore[arg-type]
            task = self._tasks.get()

    def _perform(self, start: ExchangeStart) -> None:
        stats = start.stats
        choose = partial(self.reduction.open, start.seen, start.durations_s)
        opened = self._wire.post(choose, stats.clocks.begin_s)
        opened.result()
        stats.opened(opened.spans)
        buckets = self._arriving(stats)
        for starts, started in in_turn(buckets, start.ahead):
            (self._start if starts else self._go_on)(started, start)

    def _arriving(self, stats: ExchangeStats) -> Iterator[Started]:
        """The buckets of an exchange, as they come."""
        while (jobs := self._tasks.get()) is not None:
            assert isinstance(jobs, list), "an exchange begins before the last bucket of another"
            self._unsettled.extend(jobs)
            for job in jobs:
                stats.computed(job.number, job.handed, job.part_s, job.last)
            for job in jobs:
                stats.computes = len(jobs) == 1 and not job.last
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

    def _start(self, started: Started, start: ExchangeStart) -> None:
        job, stats = started.job, start.stats
        density = self.reduction.density
        seconds = self.charge(job.laid, density, start.step) if self.charge else None
        stats.begins()
        if seconds is None:  # what takes as long as here is not begun before its time
            self.clock.sleep_until(stats.clocks.now_s)
        self._stream.follow(job.ready_event, job.laid.buffer)
        told_s = None if seconds is None else deque(self.reduction.phases_s(seconds))
        lane_workers = LaneWorkers(
            job.number, self._wire, stats, self.clock, self._stream, started.fiber.pause, told_s
        )
        started.fiber.start(partial(self._reduce, start.step, job, lane_workers))

    def _reduce(self, step: int, job: BucketJob, lane_workers: LaneWorkers) -> None:
        lane_workers.begin()
        self.reduction.reduce(step, job.number, job.laid, lane_workers)
        lane_workers.end()

    def _go_on(self, started: Started, start: ExchangeStart) -> None:
        started.fiber.go_on()
        self._idle.append(started.fiber)
        if started.job.last:  # backward waits for it, and so ends on time
            self.clock.sleep_until(start.stats.clocks.end_s)
        job = self._unsettled.popleft()
        job.future.set_result(job.laid.buffer)  # on our stream, which the future remembers
