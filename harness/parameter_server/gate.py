"""Who of a server's sessions may go on: bounds between them, and stops at which all wait."""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

Member = Hashable  # a session
Say = Callable[[], None]  # that the server is alive; called every so often while one waits


class Standing(NamedTuple):
    """Of a session, among those that have steps to do."""

    done: int  # steps, counted from where it came in
    ahead: int  # of the slowest


@dataclass
class Gate:
    """Sessions come in, advance, wait here, and leave; only a thread of its own speaks for each.

    A session may be at most `bound` steps ahead of the slowest that has not finished (stale
    synchronous parallel; Ho et al., 2013). Who comes in later counts as one of the slowest.
    """

    bound: int | None
    now: Callable[[], float]
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _done: dict[Member, int] = field(default_factory=dict, init=False)  # of those that are here
    _waiting: set[Member] = field(default_factory=set, init=False)
    _finished: set[Member] = field(default_factory=set, init=False)
    _stopping: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)
    quiet_at: float = field(default=0.0, init=False)  # when the last of all began to wait

    def come_in(self, member: Member, say: Say, every_s: float) -> None:
        """Not while all are being stopped."""

        def enter() -> None:
            self._done[member] = self._slowest()

        self._wait(lambda: not self._stopping, enter, say, every_s)

    def leave(self, member: Member) -> None:
        with self._changed:
            self._done.pop(member, None)
            self._finished.discard(member)
            self._waiting.discard(member)
            self._note_quiet()

    def advance(self, member: Member) -> Standing:
        """`member` has done a step."""
        with self._changed:
            before = self._done.get(member, self._slowest())  # it may have left meanwhile
            ahead = before - self._slowest()
            if member in self._done:
                self._done[member] = before + 1
            self._changed.notify_all()
            return Standing(before, ahead)

    def stop(self) -> None:
        """Let nobody go on, from now on; those that are under way come to wait in the end."""
        with self._changed:
            self._stopping = True
            self._note_quiet()

    def go(self, ends: bool) -> None:
        """Let all go on; `ends`: also those that have finished."""
        with self._changed:
            self._stopping, self._closed = False, ends
            self._changed.notify_all()

    def pass_through(
        self, member: Member, may: Callable[[], bool], say: Say, every_s: float
    ) -> None:
        """Wait until `member` may do its next step."""

        def allowed() -> bool:
            near = self.bound is None or self._done[member] - self._slowest() <= self.bound
            return not self._stopping and (self._closed or (near and may()))

        self._await(member, allowed, say, every_s)

    def finish(self, member: Member, say: Say, every_s: float) -> None:
        """`member` has no more steps; wait until nobody has."""
        with self._changed:
            self._finished.add(member)
        self._await(member, lambda: self._closed, say, every_s)

    def wait_until_quiet(self, timeout_s: float) -> bool:
        """Whether all wait that are here, and were told to."""
        with self._changed:
            return self._changed.wait_for(self._is_quiet, timeout_s)

    def members(self) -> list[Member]:
        with self._changed:
            return list(self._done)

    def finished(self) -> list[Member]:
        with self._changed:
            return list(self._finished)

    def wake(self) -> None:
        """Something has changed that a `may` asks for."""
        with self._changed:
            self._changed.notify_all()

    def _await(self, member: Member, until: Callable[[], bool], say: Say, every_s: float) -> None:
        with self._changed:
            self._waiting.add(member)
            self._note_quiet()
        self._wait(until, lambda: self._waiting.discard(member), say, every_s)

    def _wait(
        self, until: Callable[[], bool], then: Callable[[], None], say: Say, every_s: float
    ) -> None:
        """Nothing can change between `until` and `then`."""
        while True:
            with self._changed:
                if self._changed.wait_for(until, every_s):
                    then()
                    self._changed.notify_all()
                    return
            say()  # it may take long, or fail

    def _note_quiet(self) -> None:
        if self._is_quiet():
            self.quiet_at = self.now()
        self._changed.notify_all()

    def _is_quiet(self) -> bool:
        return self._stopping and self._waiting >= set(self._done)

    def _slowest(self) -> int:
        """Steps of the one that has done fewest, of those that go on."""
        going = [count for member, count in self._done.items() if member not in self._finished]
        return min(going, default=max(self._done.values(), default=0))
