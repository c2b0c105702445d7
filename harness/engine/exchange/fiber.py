"""A function that can be left in the middle and come back to, in a thread of its own.

A generator could be left only where the algorithm itself yields, and would share its thread's
memory (`compressors.workspace`, scratch of kernels) with the next bucket, while its payload there
is still on the wire. In a thread an algorithm is plain blocking code.
"""

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from setproctitle import setthreadtitle

_GO_ON, _LEAVE = object(), object()


class FiberAbandoned(BaseException):
    """Nobody comes back to what is paused."""


class Fiber:
    """Takes turns with its caller, who waits while it runs; does one piece of work at a time."""

    def __init__(self, context: Callable[[], AbstractContextManager[None]]) -> None:
        """The thread works within `context`."""
        self._context = context
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._returns: queue.SimpleQueue[tuple[bool, BaseException | None]] = queue.SimpleQueue()
        self._is_over = True
        self._thread = threading.Thread(target=self._serve, name="exchange fiber", daemon=True)
        self._thread.start()

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` until it pauses or ends; raises what it does."""
        self._resume(work)

    def go_on(self) -> None:
        """Run what was started until it pauses again or ends; if it has not ended already."""
        if not self._is_over:
            self._resume(_GO_ON)

    def pause(self) -> None:
        """Called by the work: the caller goes on, until it comes back."""
        self._returns.put((False, None))
        if self._calls.get() is _LEAVE:
            raise FiberAbandoned

    def close(self) -> None:
        """End the thread, wherever its work was paused."""
        self._calls.put(_LEAVE)
        self._thread.join()

    def _resume(self, call: Any) -> None:
        self._calls.put(call)
        self._is_over, error = self._returns.get()
        if error is not None:
            raise error

    def _serve(self) -> None:
        setthreadtitle("exchange fiber")  # by which harness.runner.priority finds it
        with self._context():
            while (work := self._calls.get()) is not _LEAVE:
                try:
                    work()
                except FiberAbandoned:
                    return
                except BaseException as error:  # its caller raises it
                    self._returns.put((True, error))
                else:
                    self._returns.put((True, None))
                del work  # do not keep the last bucket alive while waiting for the next
