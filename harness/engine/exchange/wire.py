"""The network lane of a rank over packets: one thread performs the collectives, in one order."""

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from setproctitle import setthreadtitle

from harness.clock import Clock
from harness.engine.exchange.clocks import Interval
from harness.engine.exchange.stream import Stream
from harness.engine.exchange.workers import Workers


class PendingCollectives:
    """Collectives on their way: what comes of them, and when each was on the wire."""

    def __init__(self, collectives: Callable[[], Any], due: float, of_bucket: bool) -> None:
        self.collectives, self.due, self.of_bucket = collectives, due, of_bucket
        self.spans: list[Interval] = []  # on the clock; once there is a result
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def ends(self, value: Any, spans: list[Interval]) -> None:
        self._value, self.spans = value, spans
        self._done.set()

    def fails(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    def result(self) -> Any:
        """Waits for it; raises what the collectives have."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value


class CollectiveThread:
    """The only thread that uses `workers`. After a failure it does so no more."""

    def __init__(self, workers: Workers, clock: Clock) -> None:
        self.workers = workers
        self._clock, self._stream = clock, Stream(workers.device)
        self._queue: queue.SimpleQueue[PendingCollectives | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="exchange wire", daemon=True)
        self._thread.start()

    def post(
        self, collectives: Callable[[], Any], due: float, of_bucket: bool = False
    ) -> PendingCollectives:
        """Queue collectives, to be performed after all posted before and not before `due`.

        `of_bucket` says that gradients wait for them.
        """
        sending = PendingCollectives(collectives, due, of_bucket)
        self._queue.put(sending)
        return sending

    def close(self) -> None:
        """End when all that was posted has been performed."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        setthreadtitle("exchange wire")  # by which harness.runner.priority finds it
        with self._stream.entered():
            while (sending := self._queue.get()) is not None:
                try:
                    self._perform(sending)
                except BaseException as error:  # whatever it is, a reduction waits for it
                    self._error = error
                    sending.fails(error)
                del sending  # do not keep tensors alive while waiting for the next

    def _perform(self, sending: PendingCollectives) -> None:
        if self._error is not None:
            raise self._error
        sleep = partial(self._clock.sleep_until, sending.due)
        if sending.of_bucket:
            self.workers.processor_waits.until_due(sending.due - self._clock.now(), sleep)
        else:
            sleep()
        self.workers.intervals.clear()
        value = sending.collectives()
        self._stream.finish()
        begin = self._clock.monotonic(0.0)
        sending.ends(value, [(start - begin, end - begin) for start, end in self.workers.intervals])
