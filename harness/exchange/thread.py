"""The gradient exchange: DDP's buckets go to one communication thread that runs the algorithm.

`begin` lets the thread choose a density while forward runs. DDP calls `hook` with each bucket as
backward produces it and gets a future. The thread takes the buckets in order and runs plain
blocking code: compensate, compress, communicate, decompress. Backward goes on meanwhile, so every
algorithm overlaps, and blocking times are exact.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.futures import Future

from controllers.base import Observation
from harness.clock import Clock
from harness.exchange.reduction import Reduction
from harness.exchange.tally import Exchanged, Tally
from harness.exchange.workers import Workers

JOIN_S = 5.0  # the thread ends between two buckets; longer means a collective hangs


class ExchangeError(RuntimeError):
    """The exchange failed; its cause is the error of the communication thread."""


class Opening(NamedTuple):
    """The choice of an exchange's density."""

    seen: Observation | None  # the exchange before
    durations_s: list[float] | None  # of its collectives, emulated


class Job(NamedTuple):
    """One bucket on its way through the thread."""

    buffer: Tensor  # [n]; the mean gradient is written here
    names: tuple[str, ...]
    gradients: list[Tensor]  # views of buffer by parameter
    parameters: Sequence[Tensor]  # that are trained, in the same order; may be none
    due: float  # real seconds on the clock before which it may not be sent
    future: Future
    ready_event: Any  # CUDA event after which buffer holds the gradient, None on the CPU


@dataclass
class Exchange:
    """Owns the communication thread of one rank, which runs `reduction` on every bucket.

    `shares` gives each parameter's share of backward; `release` maps the share of backward done so
    far to the clock time at which a bucket may be sent (None: as soon as it is ready). With
    `after_backward` no bucket is sent before the last is ready.
    """

    reduction: Reduction
    workers: Workers  # those of the reduction, whose bytes and seconds are counted
    clock: Clock
    names: dict[int, str]  # id of parameter -> name
    shares: dict[str, float]
    after_backward: bool = False
    error: BaseException | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._queue: queue.SimpleQueue[Opening | Job | None] = queue.SimpleQueue()
        self._held: list[Job] = []  # that backward's end will send
        self._release: Callable[[float], float] | None = None
        self._tally = Tally(self.workers)
        self._seen: Observation | None = None
        self._durations_s: list[float] | None = None
        self._step = 0
        self._stream: Any = None
        self._thread = threading.Thread(target=self._serve, name="exchange", daemon=True)
        self._thread.start()

    # Called by the training thread.

    def begin(self, release: Callable[[float], float] | None) -> None:
        """A new exchange; call before forward, which hides how long its opening takes."""
        self._raise_if_failed()
        self._release = release
        begin = release(0.0) if release else self.clock.now()
        self._tally = Tally(self.workers, backward_begin=begin)
        self._queue.put(Opening(self._seen, self._durations_s))

    def begin_backward(self) -> None:
        """Forward is over; without this call, and a release, it is thought to take no time."""
        if self._release is None:
            self._tally.backward_begin = self.clock.now()

    def hook(self, state: object, bucket: torch.distributed.GradBucket) -> Future[Tensor]:
        """DDP communication hook."""
        names = tuple(self.names[id(parameter)] for parameter in bucket.parameters())
        parameters = [parameter.detach() for parameter in bucket.parameters()]
        gradients = bucket.gradients()
        return self.submit(bucket.buffer(), names, gradients, parameters, bucket.is_last())

    def submit(
        self,
        buffer: Tensor,
        names: tuple[str, ...],
        gradients: list[Tensor],
        parameters: Sequence[Tensor] = (),
        last: bool = False,
    ) -> Future:
        """Queue one bucket; the future's value is `buffer` holding the mean gradient.

        `last`: it is that of backward's end, for which an exchange after backward waits.
        """
        tally, now = self._tally, self.clock.now()
        tally.share += sum(self.shares[name] for name in names)
        due = self._release(tally.share) if self._release else now
        tally.ready(now, due)
        on_cuda = buffer.is_cuda
        future: Future = Future(devices=[buffer.device]) if on_cuda else Future()
        event = torch.cuda.current_stream().record_event() if on_cuda else None
        self._held.append(Job(buffer, names, gradients, parameters, due, future, event))
        if last or not self.after_backward:
            self._send_held(due)
        return future

    def _send_held(self, due: float) -> None:
        self._tally.sendable()
        for job in self._held:
            self._queue.put(job._replace(due=due))
        self._held.clear()

    def finish(self) -> Exchanged:
        """Totals of this exchange; call when all its futures are done (backward has returned)."""
        self._raise_if_failed()
        self._durations_s = [took / self.clock.dilation for took in self._tally.durations_s()]
        reduction = self.reduction
        told = reduction.density, reduction.norms(), reduction.occupancy()
        return self._tally.total(self.clock, *told)

    def observe(self, seen: Observation) -> None:
        """What the controller will see when it chooses the next exchange's density."""
        self._seen = seen
        self._step = seen.step + 1

    def close(self) -> None:
        """End the thread; raises ExchangeError when it hangs in a collective."""
        self._queue.put(None)
        self._thread.join(JOIN_S)
        if self._thread.is_alive():
            raise ExchangeError(f"the communication thread did not end within {JOIN_S} s")

    def _raise_if_failed(self) -> None:
        if self.error is not None:
            raise ExchangeError(str(self.error)) from self.error

    # Called by the communication thread.

    def _serve(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                if self.error is not None:
                    raise ExchangeError("an earlier bucket failed") from self.error
                with self._stream_of_its_own():
                    self._perform(task)
            except BaseException as error:  # whatever it is, backward must not wait for ever
                self.error = self.error or error
                if isinstance(task, Job):
                    task.future.set_exception(error)  # type: ignore[arg-type]
            del task  # do not keep the last bucket alive while waiting for the next

    @contextmanager
    def _stream_of_its_own(self) -> Iterator[None]:
        device = self.workers.device
        if device.type != "cuda":
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        with torch.cuda.device(device), torch.cuda.stream(self._stream):
            yield

    def _perform(self, task: Opening | Job) -> None:
        if isinstance(task, Opening):
            self.reduction.open(task.seen, task.durations_s)
            self._tally.opened()
            return
        if task.ready_event is not None:
            self._stream.wait_event(task.ready_event)
            task.buffer.record_stream(self._stream)
        self._reduce(task)
        task.future.set_result(task.buffer)  # on our stream, which the future remembers

    def _reduce(self, job: Job) -> None:
        _sleep_until(job.due, self.clock)
        tally, workers = self._tally, self.workers
        begin, seconds = time.monotonic(), workers.seconds
        self.reduction.reduce(
            self._step, tally.buckets, job.names, job.gradients, job.buffer, job.parameters
        )
        took = time.monotonic() - begin
        tally.reduced(job.buffer.numel(), took, workers.seconds - seconds)


def _sleep_until(due: float, clock: Clock) -> None:
    wait = due - clock.now()
    if wait > 0:
        time.sleep(wait)
