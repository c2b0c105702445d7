"""Cooperative threads of a simulated run: the thread with the smallest time runs next.

Every thread has its own emulated time and belongs to a rank. One thread runs at a time, until it
waits or its time passes another's. So threads act in the order of their times, and every run gives
the same result (a conservative simulation: Chandy and Misra, 1979). Each rank has its own random
numbers, as real processes do. They are restored when one of its threads runs.

Threads are greenlets of one kernel thread. A switch takes 0.5 us, compared with 10 us for a lock
between two kernel threads. Greenlets have their own contextvars, and torch's grad mode is restored
after a switch. No thread may wait under autocast.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import torch
from greenlet import getcurrent, greenlet

from harness.engine.training.random_numbers import random_numbers, set_random_numbers

JOIN_S = 10.0  # limit for the running thread to reach its next wait

Until = Callable[[], float | None]  # time at which a thread may run, or None if not yet


class Left(BaseException):
    """Raised in a waiting thread when the world has ended."""


class Stuck(RuntimeError):
    """Deadlock: every thread waits for another."""


class Happening(Protocol):
    """Process that advances beside the threads, such as messages that share links."""

    def next_s(self) -> float:
        """Return the time of its next event if no new one begins, or inf if there is none."""
        ...

    def advance(self, time_s: float) -> None:
        """Advance to `time_s`."""
        ...


@dataclass(eq=False)
class Thread:
    """A cooperative thread. `now_s` is its time, `until` its wait condition, None if ready."""

    rank: int
    name: str
    now_s: float
    is_aside: bool  # a helper: the world ends without it
    until: Until | None = None
    is_over: bool = field(default=False, init=False)
    own: greenlet = field(init=False)

    def due_s(self) -> float | None:
        """Return the time at which the thread can run, or None if not yet known."""
        if self.until is None:
            return self.now_s
        at_s = self.until()
        return None if at_s is None else max(self.now_s, at_s)


class World:
    """The set of threads of a simulated run, and their scheduler.

    Build it, `begin` its threads, and call `run` from outside. Torch's random numbers are those of
    the rank that runs.
    """

    def __init__(self, device: torch.device, happening: Happening | None = None) -> None:
        self._device, self._happening = device, happening
        self._cores = torch.get_num_threads()  # matrix products round differently by it
        self._threads: list[Thread] = []
        self._random: dict[int, dict[str, Any]] = {}  # of ranks that are not running
        self._is_over = False
        self._running: Thread | None = None
        self._following: Thread | None = None  # next, once the running one has ended
        self._root: greenlet | None = None
        self.turns = 0  # number of switches
        self.failure: tuple[int, BaseException] | None = None  # rank and error of the first failure

    # Called by the running thread.

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
        """Return a new thread that will do `work` from time `now_s` on. It does not run yet.

        The world ends without waiting for threads that are `aside`.
        """
        thread = Thread(rank, name, now_s, aside)
        thread.own = greenlet(lambda: self._do(thread, work))
        self._threads.append(thread)
        self._random.setdefault(rank, random_numbers(self._device))
        return thread

    def wait(self, until: Until) -> None:
        """Wait until `until()` returns a time and it has come. Raise Left if the world ends."""
        own = self.running
        own.until = until
        self._pass_on(own)

    def wait_for(self, true: Callable[[], bool]) -> None:
        """Wait until `true()` holds, through the action of another thread."""
        since: list[float] = []

        def until() -> float | None:
            if not since and true():
                since.append(-inf if self._running is None else self._running.now_s)
            return since[0] if since else None

        while not true():
            since.clear()
            self.wait(until)

    def sleep_until(self, time_s: float) -> None:
        """Advance this thread's time to `time_s`. Threads that are due before then run first."""
        if time_s > self.running.now_s:
            self.wait(lambda: time_s)

    # Called by the owner of the world.

    def run(self) -> None:
        """Run all threads to their end. `failure` then has the first rank and error, if any."""
        self._following = self._chosen()
        ended = threading.Event()
        real = threading.Thread(target=self._all_turns, args=(ended,), name="world", daemon=True)
        real.start()
        try:
            ended.wait()
        finally:  # also on an interrupt
            self._is_over = True
            real.join(JOIN_S)

    def _all_turns(self, ended: threading.Event) -> None:
        """Run all turns in one kernel thread. Each greenlet that ends returns here."""
        self._root = getcurrent()
        torch.set_num_threads(self._cores)  # a new thread has a default of its own
        try:
            while self._following is not None and not self._is_over:
                following, self._following = self._following, None
                self._let(following)
            self._is_over = True
            for thread in self._threads:
                if thread.own:  # it has begun: resume it so that it raises `Left`
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
        """Start `thread` from the root greenlet, so that an unwinder finds the end of its stack.

        Torch unwinds the C stack for every error that it raises. The root's frames stay in place.
        Those of any other greenlet are moved away, and the unwinder would read garbage.
        """
        assert self._root is not None
        self._following = thread
        self._root.switch()

    def _let(self, thread: Thread) -> None:
        """Switch to `thread`, with its rank's random state, until the caller's turn or its end."""
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
        """Return the thread that is due first, or None if all ended. Raise Stuck in a deadlock."""
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
