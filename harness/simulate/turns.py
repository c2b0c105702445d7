"""Threads that take turns: one runs at a time, until it meets the others or has done its work."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

JOIN_S = 10.0  # for a thread to come to its next meeting


class Left(Exception):
    """The others will not come to the meeting: the turns are over."""


class Turns:
    """`size` threads that do `work(rank)` once in every round.

    Handing over is one lock released and one waited for, so nobody waits for Python's own lock,
    and what a thread measures while it runs is its own work.
    """

    def __init__(self, size: int, work: Callable[[int], None]) -> None:
        self.size, self._work = size, work
        self._wake = [_taken() for _ in range(size)]
        self._all_done = _taken()
        self._ready: deque[int] = deque()
        self._brought: list[Any] = [None] * size
        self._met = self._busy = 0
        self._made: Any = None
        self._over = False
        self.failure: tuple[int, BaseException] | None = None  # the first: rank and error
        self._threads = [
            threading.Thread(target=self._serve, args=(rank,), name=f"worker{rank}", daemon=True)
            for rank in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def round(self) -> None:
        """Return when every thread has done its work; what one raised is in `failure`."""
        self._busy = self.size
        self._ready.extend(range(1, self.size))
        self._wake[0].release()
        self._all_done.acquire()

    def meet(self, rank: int, brought: Any, make: Callable[[list[Any]], Any]) -> Any:
        """What `make` makes of everybody's `brought`, by rank; Left when the turns are over."""
        self._brought[rank] = brought
        self._met += 1
        if self._met == self.size:
            self._met = 0
            self._made = make(self._brought)
            self._brought = [None] * self.size
            self._ready.extend(other for other in range(self.size) if other != rank)
        else:
            self._pass_on()
            self._wake[rank].acquire()
            if self._over:
                raise Left
        return self._made

    def close(self) -> None:
        """End the threads, also in the middle of a round."""
        self._over = True
        for lock in self._wake:
            if lock.locked():
                lock.release()
        for thread in self._threads:
            thread.join(JOIN_S)

    def _serve(self, rank: int) -> None:
        while True:
            self._wake[rank].acquire()
            if self._over:
                return
            try:
                self._work(rank)
            except Left:
                return
            except BaseException as error:
                self._fail(rank, error)
                return
            self._busy -= 1
            if self._busy:
                self._pass_on()
            else:
                self._all_done.release()

    def _pass_on(self) -> None:
        if self._over:
            return
        if self._ready:
            self._wake[self._ready.popleft()].release()
            return
        absent = [rank for rank, brought in enumerate(self._brought) if brought is None]
        done = ", ".join(map(str, absent))
        self._fail(absent[0], RuntimeError(f"workers wait for rank {done}, which is done already"))

    def _fail(self, rank: int, error: BaseException) -> None:
        self.failure = self.failure or (rank, error)
        self._over = True
        self._all_done.release()


def _taken() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
