"""Threads that take turns in emulated time: who is behind the others goes on.

Every thread has a time of its own and belongs to a rank. One runs at a time, until it waits, or its
time passes another's: so what threads do to each other they do in the order of their times, and a
run is the same every time (a conservative simulation: Chandy and Misra, 1979). Ranks that were
processes of their own share nothing: each has its own random numbers, put in place when one of its
threads runs.

They are greenlets of one thread of the kernel: a turn changes in half a microsecond, where two
threads of the kernel that hand a lock over take ten. What contextvars keep is each greenlet's own,
as it is each thread's. Whether torch keeps gradients is put back; nobody waits under autocast.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import torch
from greenlet import getcurrent, greenlet

from harness.engine.training.random_numbers import random_numbers, set_random_numbers

JOIN_S = 10.0  # for the thread that runs to come to where it waits

Until = Callable[[], float | None]  # when a thread may go on; None: not yet


class Left(BaseException):
    """The world is over: nothing that a thread waits for will come."""


class Stuck(RuntimeError):
    """Deadlock: every thread waits for another."""


class Happening(Protocol):
    """Process that goes on beside threads, such as messages that share links."""

    def next_s(self) -> float:
        """Time at which something ends, if nothing begins before; inf if nothing goes on."""
        ...

    def advance(self, time_s: float) -> None:
        """Advance to `time_s`."""
        ...


@dataclass(eq=False)
class Thread:
    """`now_s` is its own time; `until` what it waits for, None: nothing."""

    rank: int
    name: str
    now_s: float
    is_aside: bool  # serves others: the world ends without it
    until: Until | None = None
    is_over: bool = field(default=False, init=False)
    own: greenlet = field(init=False)

    def due_s(self) -> float | None:
        """Time at which the thread goes on, as far as is known; None if it is not."""
        if self.until is None:
            return self.now_s
        at_s = self.until()
        return None if at_s is None else max(self.now_s, at_s)


class World:
    """Made, given threads, and `run` by one thread that is none of them.

    `random` numbers of `device` are those of whichever rank runs.
    """

    def __init__(self, device: torch.device, happening: Happening | None = None) -> None:
        self._device, self._happening = device, happening
        self._cores = torch.get_num_threads()  # by which products of matrices are rounded
        self._threads: list[Thread] = []
        self._random: dict[int, dict[str, Any]] = {}  # of ranks that do not run
        self._is_over = False
        self._running: Thread | None = None
        self._following: Thread | None = None  # once the one that runs has ended
        self._root: greenlet | None = None
        self.turns = 0  # that were taken
        self.failure: tuple[int, BaseException] | None = None  # the first: rank and error

    # Called by whichever thread runs.

    @property
    def running(self) -> Thread:
        assert self._running is not None
        return self._running

    @property
    def now_s(self) -> float:
        return self.running.now_s

    def begin(
        self,
        work: Callable[[], None],
        rank: int,
        name: str,
        now_s: float = 0.0,
        aside: bool = False,
    ) -> Thread:
        """A new thread, which does `work` from `now_s` on; it does not run yet."""
        thread = Thread(rank, name, now_s, aside)
        thread.own = greenlet(lambda: self._do(thread, work))
        self._threads.append(thread)
        self._random.setdefault(rank, random_numbers(self._device))
        return thread

    def wait(self, until: Until) -> None:
        """Wait until others have made `until` return a time, and that time has come."""
        own = self.running
        own.until = until
        self._pass_on(own)

    def wait_for(self, true: Callable[[], bool]) -> None:
        """Wait until a condition holds, through what another thread does."""
        since: list[float] = []

        def until() -> float | None:
            if not since and true():
                since.append(self._last_s())
            return since[0] if since else None

        while not true():
            since.clear()
            self.wait(until)

    def sleep_until(self, time_s: float) -> None:
        """Let others go on that are before that time."""
        if time_s > self.running.now_s:
            self.wait(lambda: time_s)

    # Called by who has made the world.

    def run(self) -> None:
        """Run every thread to its end; an error that one raised is in `failure`."""
        self._following = self._chosen()
        ended = threading.Event()
        real = threading.Thread(target=self._all_turns, args=(ended,), name="world", daemon=True)
        real.start()
        try:
            ended.wait()
        finally:  # also when it is interrupted
            self._is_over = True
            real.join(JOIN_S)

    def _all_turns(self, ended: threading.Event) -> None:
        """In the kernel's thread whose greenlets all are: each that ends comes back here."""
        self._root = getcurrent()
        torch.set_num_threads(self._cores)  # a thread has a number of its own
        try:
            while self._following is not None and not self._is_over:
                following, self._following = self._following, None
                self._let(following)
            self._is_over = True
            for thread in self._threads:
                if thread.own:  # it has begun, and raises `Left` when it sees that all is over
                    thread.own.switch()
        finally:
            ended.set()

    def _do(self, thread: Thread, work: Callable[[], None]) -> None:
        torch.set_grad_enabled(True)
        try:
            work()
            if self._is_over:
                return
            self._threads.remove(thread)
            thread.is_over = True
            self._following = self._chosen()
        except Left:
            return
        except BaseException as error:
            self.failure = self.failure or (thread.rank, error)

    def _pass_on(self, own: Thread) -> None:
        if self._is_over:
            raise Left
        following = self._chosen()
        if following is own:
            self._take(own)
            return
        if following is None:
            raise Stuck("nothing is left to be done")
        assert not torch.is_autocast_enabled(self._device.type), "a thread waits under autocast"
        with_gradients = torch.is_grad_enabled()
        if following.own:
            self._let(following)
        else:
            self._begin_at_root(following)
        torch.set_grad_enabled(with_gradients)
        if self._is_over:
            raise Left

    def _begin_at_root(self, thread: Thread) -> None:
        """Have the root greenlet start `thread`, so that an unwinder finds the end of its stack.

        Torch unwinds the stack of C for every error that it raises. Frames of the root stay where
        they are; those of any other greenlet are moved away, and the unwinder would read garbage.
        """
        assert self._root is not None
        self._following = thread
        self._root.switch()

    def _let(self, thread: Thread) -> None:
        """Let `thread` run; comes back at the turn of who has called, or once it has ended."""
        before = self._running
        if before is None or thread.rank != before.rank:
            if before is not None:
                self._random[before.rank] = random_numbers(self._device)
            set_random_numbers(self._random[thread.rank], self._device)
        self._take(thread)
        self.turns += 1
        if not thread.own:
            thread.own.parent = self._root
        thread.own.switch()

    def _take(self, thread: Thread) -> None:
        due_s = thread.due_s()
        assert due_s is not None
        thread.now_s, thread.until, self._running = due_s, None, thread

    def _chosen(self) -> Thread | None:
        """Thread to run next: the first of those furthest behind; None: all is done."""
        if all(thread.is_aside for thread in self._threads):
            return None
        while True:
            due = [
                (at, n) for n, each in enumerate(self._threads) if (at := each.due_s()) is not None
            ]
            first_s, number = min(due, default=(inf, -1))
            ends_s = self._happening.next_s() if self._happening else inf
            if first_s <= ends_s and number >= 0:
                return self._threads[number]
            if self._happening is None or ends_s == inf:
                waiting = ", ".join(each.name for each in self._threads if not each.is_aside)
                raise Stuck(f"these wait for what will not come: {waiting}")
            self._happening.advance(ends_s)

    def _last_s(self) -> float:
        return -inf if self._running is None else self._running.now_s
