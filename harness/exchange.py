"""The gradient exchange: DDP's buckets go to one communication thread that runs the algorithm.

DDP calls `hook` with each bucket as backward produces it and gets a future. The thread takes the
buckets in order and runs plain blocking code: compensate, compress, communicate, decompress.
Backward goes on meanwhile, so every algorithm overlaps, and blocking times are exact.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.futures import Future

from controllers.base import Observation
from harness.clock import Clock
from harness.norms import Norms
from harness.reduction import Reduction
from harness.workers import Workers

JOIN_S = 5.0  # the thread ends between two buckets; longer means a collective hangs


class ExchangeError(RuntimeError):
    """The exchange failed; its cause is the error of the communication thread."""


class Job(NamedTuple):
    """One bucket on its way through the thread."""

    buffer: Tensor  # [n]; the mean gradient is written here
    names: tuple[str, ...]
    gradients: list[Tensor]  # views of buffer by parameter
    parameters: Sequence[Tensor]  # that are trained, in the same order; may be none
    due: float  # real seconds on the clock before which it may not be sent
    future: Future
    ready_event: Any  # CUDA event after which buffer holds the gradient, None on the CPU


class Exchanged(NamedTuple):
    """What one exchange took, in real seconds and bytes."""

    compute_end: float  # clock time at which the last bucket was ready, or due if that was later
    backward_s: float  # from the beginning of backward to compute_end
    late_s: float  # how much the last bucket missed its due time; 0 without pacing
    hiding_s: float  # from when the first bucket could be sent to compute_end
    compress_s: float
    comm_s: float
    exposed_s: float  # part of comm_s after compute_end
    sent_bytes: int
    received_bytes: int
    dense_bytes: int
    density: float
    norms: Norms


@dataclass
class _Tally:
    """Sums over the buckets of the exchange in progress."""

    buckets: int = 0
    share: float = 0.0  # of backward, of the buckets handed over so far
    dense_bytes: int = 0
    compress_s: float = 0.0
    backward_begin: float = 0.0  # clock time
    first_ready: float | None = None  # clock time
    compute_end: float = 0.0
    late_s: float = 0.0


@dataclass
class Exchange:
    """Owns the communication thread of one rank, which runs `reduction` on every bucket.

    `shares` gives each parameter's share of backward; `release` maps the share of backward done so
    far to the clock time at which a bucket may be sent (None: as soon as it is ready).
    """

    reduction: Reduction
    workers: Workers  # those of the reduction, whose bytes and seconds are counted
    clock: Clock
    names: dict[int, str]  # id of parameter -> name
    shares: dict[str, float]
    error: BaseException | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._release: Callable[[float], float] | None = None
        self._tally = _Tally()
        self._seen: Observation | None = None
        self._step = 0
        self._stream: Any = None
        self._thread = threading.Thread(target=self._serve, name="exchange", daemon=True)
        self._thread.start()

    # Called by the training thread.

    def begin(self, release: Callable[[float], float] | None) -> None:
        """A new exchange; call before backward."""
        self._raise_if_failed()
        self._release = release
        self._tally = _Tally(backward_begin=release(0.0) if release else self.clock.now())
        self._sent_before = self.workers.sent_bytes
        self._received_before = self.workers.received_bytes
        self._seconds_before = self.workers.seconds
        self.workers.intervals.clear()

    def begin_backward(self) -> None:
        """Forward is over; without this call, and a release, it is thought to take no time."""
        if self._release is None:
            self._tally.backward_begin = self.clock.now()

    def hook(self, state: object, bucket: torch.distributed.GradBucket) -> Future[Tensor]:
        """DDP communication hook."""
        names = tuple(self.names[id(parameter)] for parameter in bucket.parameters())
        parameters = [parameter.detach() for parameter in bucket.parameters()]
        return self.submit(bucket.buffer(), names, bucket.gradients(), parameters)

    def submit(
        self,
        buffer: Tensor,
        names: tuple[str, ...],
        gradients: list[Tensor],
        parameters: Sequence[Tensor] = (),
    ) -> Future:
        """Queue one bucket; the future's value is `buffer` holding the mean gradient."""
        tally, now = self._tally, self.clock.now()
        tally.share += sum(self.shares[name] for name in names)
        due = self._release(tally.share) if self._release else now
        tally.late_s = max(0.0, now - due)
        tally.compute_end = max(due, now)
        if tally.first_ready is None:
            tally.first_ready = tally.compute_end
        on_cuda = buffer.is_cuda
        future: Future = Future(devices=[buffer.device]) if on_cuda else Future()
        event = torch.cuda.current_stream().record_event() if on_cuda else None
        self._queue.put(Job(buffer, names, gradients, parameters, due, future, event))
        return future

    def finish(self) -> Exchanged:
        """Totals of this exchange; call when all its futures are done (backward has returned)."""
        self._raise_if_failed()
        tally, workers = self._tally, self.workers
        end = tally.compute_end - self.clock.now() + time.monotonic()  # on the collectives' clock
        exposed = sum(max(0.0, stop - max(start, end)) for start, stop in workers.intervals)
        return Exchanged(
            compute_end=tally.compute_end,
            backward_s=tally.compute_end - tally.backward_begin,
            late_s=tally.late_s,
            hiding_s=tally.compute_end - (tally.first_ready or tally.compute_end),
            compress_s=tally.compress_s,
            comm_s=workers.seconds - self._seconds_before,
            exposed_s=exposed,
            sent_bytes=workers.sent_bytes - self._sent_before,
            received_bytes=workers.received_bytes - self._received_before,
            dense_bytes=tally.dense_bytes,
            density=self.reduction.density,
            norms=self.reduction.norms(),
        )

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
        while (job := self._queue.get()) is not None:
            try:
                if self.error is not None:
                    raise ExchangeError("an earlier bucket failed") from self.error
                self._reduce_on_its_device(job)
            except BaseException as error:  # whatever it is, backward must not wait for ever
                self.error = self.error or error
                job.future.set_exception(error)  # type: ignore[arg-type]
            del job  # do not keep the last bucket alive while waiting for the next

    def _reduce_on_its_device(self, job: Job) -> None:
        if job.ready_event is None:
            self._reduce(job)
            job.future.set_result(job.buffer)
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(job.buffer.device)
        with torch.cuda.device(job.buffer.device), torch.cuda.stream(self._stream):
            self._stream.wait_event(job.ready_event)
            job.buffer.record_stream(self._stream)
            self._reduce(job)
            job.future.set_result(job.buffer)  # inside: the future remembers this stream

    def _reduce(self, job: Job) -> None:
        _sleep_until(job.due, self.clock)
        tally = self._tally
        if tally.buckets == 0:
            self.reduction.open(self._seen)
        begin, seconds = time.monotonic(), self.workers.seconds
        self.reduction.reduce(
            self._step, tally.buckets, job.names, job.gradients, job.buffer, job.parameters
        )
        tally.buckets += 1
        tally.dense_bytes += 4 * job.buffer.numel()
        tally.compress_s += time.monotonic() - begin - (self.workers.seconds - seconds)


def _sleep_until(due: float, clock: Clock) -> None:
    wait = due - clock.now()
    if wait > 0:
        time.sleep(wait)
