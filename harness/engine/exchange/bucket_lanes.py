"""Gradient exchange of one rank in threads of its own, beside backward.

The training thread calls `begin` before forward, `begin_backward` after it, and `submit` for each
bucket that backward completes (DDP calls `hook`). It gets a future of the mean. Two other threads
do the rest:

- The lane thread compresses. Each bucket runs as plain blocking code in a greenlet. It pauses once,
  at its first collective, and the thread then starts further buckets.
- The wire thread performs the collectives one after another.

All ranks perform their collectives in the same order, so no two ranks can deadlock:

1. `in_turn` orders starts and resumptions by the number of buckets alone, not by time,
2. so the lane threads of all ranks post the same collectives in the same order,
3. and each wire thread performs them in that order.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from greenlet import GreenletExit, greenlet
from setproctitle import setthreadtitle
from torch import Tensor
from torch.futures import Future

from controllers.base import Observation
from harness.clock import Clock
from harness.config.lanes import Lanes
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.levels import LaneLevel
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.engine.exchange.stats import Clocks, Exchanged, ExchangeStats, Interval, Release

JOIN_S = 5.0  # the threads end between two buckets; longer means that a collective hangs
# Seconds that compression of a bucket, at this density and step, takes on the emulated device.
Charge = Callable[[BucketBuffers, float, int], float]


class ExchangeError(RuntimeError):
    """The exchange failed. `__cause__` is the error of one of its threads."""


class Turn(NamedTuple):
    """One action of the lane thread: start a bucket, or resume it after its first collective."""

    starts: bool
    bucket: Any


def in_turn(buckets: Iterable[Any], ahead: int) -> Iterator[Turn]:
    """Yield a start for each of `buckets`, and its resumption after `ahead` more have started."""
    started: deque[Any] = deque()
    for bucket in buckets:
        yield Turn(True, bucket)
        started.append(bucket)
        if len(started) > ahead:
            yield Turn(False, started.popleft())
    for bucket in started:
        yield Turn(False, bucket)


class ExchangeStart(NamedTuple):
    """Task for the lane thread: begin an exchange and choose its density."""

    step: int
    seen: Observation | None  # the exchange before
    durations_s: list[float] | None  # of the collectives of the exchange before, emulated
    stats: ExchangeStats


class BucketJob(NamedTuple):
    """Task for the lane thread: reduce one bucket."""

    number: int  # in its exchange
    laid: BucketBuffers
    handed: float  # clock time at which backward handed it over
    part_s: float | None  # emulated seconds of its part of backward; None without pacing
    last: bool
    future: Future
    ready_event: Any  # CUDA event after which the buffer holds the gradient; None on the CPU


@dataclass
class Exchange:
    """Gradient exchange of one rank. Owns the two threads in which `reduction` runs.

    `shares` gives each parameter's share of backward. `after_backward` delays all buckets until the
    last is ready. `step` is the number of the current exchange, or of the next one. After a
    failure, `error` is set and every bucket fails.
    """

    reduction: Reduction
    workers: Workers  # of the reduction; source of bytes and times
    clock: Clock
    names: dict[int, str]  # id of parameter -> name
    shares: Mapping[str, float] = field(default_factory=dict)
    after_backward: bool = False
    lanes: Lanes = Lanes(on_device=False)
    charge: Charge | None = None  # None if compression is timed on this machine
    error: BaseException | None = field(default=None, init=False)
    step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._seen: Observation | None = None
        self._durations_s: list[float] | None = None
        self._held: list[BucketJob] = []  # until backward has ended, with `after_backward`
        now = self.clock.now()
        self._stats = ExchangeStats(self.workers, self.clock, Clocks(now, self.lanes), None, now)
        self._ahead = self.lanes.ahead
        self._tasks: queue.SimpleQueue[ExchangeStart | list[BucketJob] | None] = queue.SimpleQueue()
        self._unsettled: deque[BucketJob] = deque()  # jobs whose futures are pending
        self._paused: deque[BucketLane] = deque()
        self._memory: deque[Context] = deque()  # workspaces of lanes that have ended
        self._stream = stream_of(self.workers.device)
        self._wire = CollectiveThread(self.workers, self.clock)
        self._thread = threading.Thread(target=self._serve, name="exchange", daemon=True)
        self._thread.start()

    # Called by the training thread.

    def begin(self, release: Release | None) -> None:
        """Begin an exchange. Call it before forward, which then hides the choice of the density.

        `release` maps the share of backward done to the clock time at which the emulated device
        would be there. None means no pacing. Raise ExchangeError if an earlier exchange failed.
        """
        self._raise_if_failed()
        now = self.clock.now()
        backward_begin = release(0.0) if release else now
        clocks = Clocks(min(now, backward_begin), self.lanes)
        self._stats = ExchangeStats(self.workers, self.clock, clocks, release, backward_begin)
        self._tasks.put(ExchangeStart(self.step, self._seen, self._durations_s, self._stats))

    def begin_backward(self) -> None:
        """Record the end of forward. Without this call or pacing, forward counts as 0 s."""
        if self._stats.release is None:
            self._stats.backward_begin = self.clock.now()

    def hook(self, state: object, bucket: torch.distributed.GradBucket) -> Future[Tensor]:
        """Submit a bucket of DDP (its communication hook). Return a future of the mean gradient."""
        names, parameters = [], []
        for parameter in bucket.parameters():
            names.append(self.names[id(parameter)])
            parameters.append(parameter.detach())
        laid = BucketBuffers(bucket.buffer(), tuple(names), bucket.gradients(), parameters)
        return self.submit(laid, bucket.is_last())

    def submit(
        self, laid: BucketBuffers, last: bool = False, pattern: Tensor | None = None
    ) -> Future:
        """Queue one bucket and return a future that completes with `laid.buffer`, [n].

        The buffer then holds the mean gradient over workers. `pattern`, [n], replaces its content
        before compression, if given. `last` means that backward has ended. With `after_backward`,
        no bucket starts before the last is submitted. The last bucket completes after all others.
        If the exchange fails, the future fails.
        """
        buffer, stats, now = laid.buffer, self._stats, self.clock.now()
        if pattern is not None:
            buffer.copy_(pattern)
        number = stats.buckets
        share = sum(self.shares.get(name, 0.0) for name in laid.names) if self.shares else 0.0
        part_s = stats.ready(now, share, buffer.numel())
        future = future_of(buffer)
        event = torch.cuda.current_stream().record_event() if buffer.is_cuda else None
        self._held.append(BucketJob(number, laid, now, part_s, last, future, event))
        if last or not self.after_backward:
            if stats.first_ready is None:
                stats.first_ready = stats.compute_end
            if (waits := self.workers.processor_waits) is not None:
                waits.handed_over()
            self._tasks.put(self._held)
            self._held = []
        return future

    def finish(self) -> Exchanged:
        """Return the statistics of the finished exchange. Raise ExchangeError if one failed."""
        self._raise_if_failed()
        durations_s = self._stats.clocks.durations_s
        self._durations_s = [took_s / self.clock.dilation for took_s in durations_s]
        return self._stats.total(self.reduction.outcome())

    def observe(self, seen: Observation) -> None:
        """Keep `seen` for the controller's next choice, and advance `step`."""
        self._seen = seen
        self.step = seen.step + 1

    def agree(self, value: float, how: str) -> float:
        """Return the `min` or `mean` of `value` over workers, which all call it together."""
        self._raise_if_failed()
        agreed = self._wire.post(partial(self.workers.agree, value, how), self.clock.now())
        return float(agreed.result().value)

    def close(self) -> None:
        """End the threads. Raise ExchangeError if one hangs in a collective."""
        self._tasks.put(None)
        self._thread.join(JOIN_S)
        if self._thread.is_alive():
            raise ExchangeError(f"the communication thread did not end within {JOIN_S} s")

    def _raise_if_failed(self) -> None:
        if self.error is not None:
            raise ExchangeError(str(self.error)) from self.error

    # Called by the lane thread.

    def _serve(self) -> None:
        setthreadtitle("exchange")  # harness.runner.priority finds the thread by this name
        try:
            with entered(self._stream):
                while (start := self._tasks.get()) is not None:
                    assert isinstance(start, ExchangeStart), "a bucket comes before its exchange"
                    self._reduce_buckets(start)
                    del start  # else the last exchange stays alive during the wait for the next
        except BaseException as error:  # any kind, because backward must not wait for ever
            self.error = error
            for lane in self._paused:
                with suppress(BaseException):
                    lane.fiber.throw(GreenletExit)
            jobs: Any = [*self._unsettled]
            while jobs is not None:
                for job in jobs if isinstance(jobs, list) else []:
                    job.future.set_exception(error)
                jobs = self._tasks.get()
        self._wire.close()

    def _reduce_buckets(self, start: ExchangeStart) -> None:
        """Choose the density of an exchange, then reduce its buckets and complete their futures."""
        stats = start.stats
        choose = partial(self.reduction.open, start.seen, start.durations_s)
        stats.opened(self._wire.post(choose, stats.clocks.begin_s).result().spans)
        for starts, job in in_turn(self._arriving(stats), self._ahead):
            if starts:
                lane = BucketLane(self, start, job)
                self._paused.append(lane)
                lane.begin()
                continue
            lane = self._paused.popleft()
            if not lane.fiber.dead:
                lane.fiber.switch()
            self._memory.append(lane.memory)
            if job.last:  # backward waits for this future, so it ends on time
                self.clock.sleep_until(stats.clocks.end_s)
            self._unsettled.popleft()
            job.future.set_result(job.laid.buffer)  # on our stream, which the future remembers

    def _arriving(self, stats: ExchangeStats) -> Iterator[BucketJob]:
        """Yield the buckets of an exchange as backward hands them over."""
        while (jobs := self._tasks.get()) is not None:
            assert isinstance(jobs, list), "an exchange begins before the one before has ended"
            self._unsettled.extend(jobs)
            for job in jobs:
                stats.computed(job.number, job.handed, job.part_s, job.last)
            for job in jobs:
                stats.computes = len(jobs) == 1 and not job.last
                yield job
            if jobs[-1].last:
                return
        self._tasks.put(None)  # for `_serve`


class BucketLane:
    """One bucket in progress, with the collectives that its compressor calls.

    `fiber` is the greenlet that runs the reduction. It pauses once, at the first collective, and
    blocks at later ones. It has its own contextvars, `memory`, because other buckets compress while
    this one's payload is on the wire.
    """

    def __init__(self, exchange: Exchange, start: ExchangeStart, job: BucketJob) -> None:
        self.rank, self.world_size = exchange.workers.rank, exchange.workers.world_size
        self._exchange, self._start, self._job = exchange, start, job
        self._charged_s: deque[float] | None = None  # before the first collective, the second...
        self._since = 0.0  # when compression began or resumed
        self._has_paused = False
        self.memory = exchange._memory.popleft() if exchange._memory else Context()
        self.fiber = greenlet(self._reduce)
        self.fiber.gr_context = self.memory

    def begin(self) -> None:
        """Run the bucket until its first collective, or to the end if it has none."""
        exchange, stats, job = self._exchange, self._start.stats, self._job
        stats.clocks.wait_until(max(stats.clocks.device_s, stats.opened_s))
        if exchange.charge is None:  # compression takes real time, so it may not begin early
            exchange.clock.sleep_until(stats.clocks.now_s)
        else:
            charged_s = exchange.charge(job.laid, exchange.reduction.density, self._start.step)
            self._charged_s = deque(exchange.reduction.phases_s(charged_s))
        if job.ready_event is not None:
            exchange._stream.wait_event(job.ready_event)
            job.laid.buffer.record_stream(exchange._stream)
        self.fiber.switch()

    def _reduce(self) -> None:
        torch.set_grad_enabled(True)  # another fiber may have paused with it off
        self._since = self._exchange.clock.now()
        reduction, job = self._exchange.reduction, self._job
        reduction.reduce_bucket(self._start.step, job.number, job.laid, self)
        self._compressed(None if self._charged_s is None else sum(self._charged_s))

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        return self._call(partial(self._exchange.workers.all_reduce, tensor, op))

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        return self._call(partial(self._exchange.workers.all_gather, *tensors, equal=equal))

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        return self._call(partial(self._exchange.workers.all_to_all, *pieces, equal=equal))

    @property
    def levels(self) -> tuple[LaneLevel, ...]:
        """The levels of the exchange's workers, for this bucket."""
        assert (levels := self._exchange.workers.levels) is not None
        return tuple(LaneLevel(level, self._call) for level in levels)

    def _call(self, collective: Callable[[], Any]) -> Any:
        exchange, stats, charged_s = self._exchange, self._start.stats, self._charged_s
        self._compressed(None if charged_s is None else charged_s.popleft() if charged_s else 0.0)
        pending = exchange._wire.post(collective, stats.clocks.now_s, of_bucket=True)
        if not self._has_paused:
            self._has_paused = True
            with_gradients = torch.is_grad_enabled()
            self.fiber.parent.switch()
            torch.set_grad_enabled(with_gradients)
        value, spans = pending.result()
        if exchange._stream is not None:
            _record(value, exchange._stream)
        stats.arrived(self._job.number, spans)
        self._since = exchange.clock.now()
        return value

    def _compressed(self, charged_s: float | None) -> None:
        """Record compression since `_since`, or `charged_s` of the emulated device unless None."""
        exchange = self._exchange
        if exchange._stream is not None:
            exchange._stream.synchronize()
        took_s = exchange.clock.now() - self._since
        self._start.stats.compressed(self._job.number, took_s, charged_s)


class Performed(NamedTuple):
    """Result of posted collectives, with their wire times on the clock."""

    value: Any
    spans: list[Interval]


class PostedCollectives(NamedTuple):
    """Task for the wire thread."""

    collectives: Callable[[], Any]
    due: float  # clock time before which they may not begin
    of_bucket: bool
    pending: futures.Future[Performed]


class CollectiveThread:
    """The wire thread of a rank, the only user of `workers`. After a failure every task fails."""

    def __init__(self, workers: Workers, clock: Clock) -> None:
        self.workers, self._clock = workers, clock
        self._posted: queue.SimpleQueue[PostedCollectives | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="exchange wire", daemon=True)
        self._thread.start()

    def post(
        self, collectives: Callable[[], Any], due: float, of_bucket: bool = False
    ) -> futures.Future[Performed]:
        """Queue collectives behind all earlier ones, to begin at clock time `due` or later.

        `of_bucket` means that a bucket waits for them. Return a future, also of errors.
        """
        pending: futures.Future[Performed] = futures.Future()
        self._posted.put(PostedCollectives(collectives, due, of_bucket, pending))
        return pending

    def close(self) -> None:
        """End the thread after all posted collectives, and wait for it."""
        self._posted.put(None)
        self._thread.join()

    def _serve(self) -> None:
        setthreadtitle("exchange wire")  # harness.runner.priority finds the thread by this name
        stream = stream_of(self.workers.device)
        failure: BaseException | None = None
        with entered(stream):
            while (posted := self._posted.get()) is not None:
                try:
                    if failure is not None:
                        raise failure
                    posted.pending.set_result(self._perform(posted, stream))
                except BaseException as error:  # any kind, because a reduction waits for the result
                    failure = error
                    posted.pending.set_exception(error)
                del posted  # else its tensors stay alive during the wait for the next

    def _perform(self, posted: PostedCollectives, stream: Any) -> Performed:
        workers, clock = self.workers, self._clock
        sleep = partial(clock.sleep_until, posted.due)
        if posted.of_bucket and workers.processor_waits is not None:
            workers.processor_waits.until_due(posted.due - clock.now(), sleep)
        else:
            sleep()
        workers.intervals.clear()
        value = posted.collectives()
        if stream is not None:
            stream.synchronize()
        origin, spans = clock.monotonic(0.0), []
        for start, end in workers.intervals:
            spans.append((start - origin, end - origin))
        return Performed(value, spans)


def future_of(tensor: Tensor) -> Future:
    """Return a new future whose value will be on the device of `tensor`."""
    return Future(devices=[tensor.device]) if tensor.is_cuda else Future()


def stream_of(device: torch.device) -> Any:
    """Return a new CUDA stream for a thread, or None on the CPU."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def entered(stream: Any) -> AbstractContextManager[Any]:
    """Context manager in which this thread launches kernels on `stream`. None means the CPU."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def _record(value: Any, stream: Any) -> None:
    """Tell the allocator that `stream` will read the tensors in `value`, made on another stream."""
    if isinstance(value, Tensor):
        value.record_stream(stream)
    elif isinstance(value, Iterable):
        for part in value:
            _record(part, stream)
