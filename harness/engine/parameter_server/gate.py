"""Who of a server's sessions may go on: bounds between them, and stops at which all wait."""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

Member = Hashable  # a session
Say = Callable[[], None]  # that the server is alive; called every so often while one waits


class Condition(Protocol):
    """Condition that threads wait for: threading.Condition's interface, also in virtual time."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *error: Any) -> bool | None: ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool: ...

    def notify_all(self) -> None: ...


def never() -> bool:
    return False


class Standing(NamedTuple):
    """Progress of a session among those that have steps to do."""

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
    changed: Condition = field(default_factory=threading.Condition)
    _done: dict[Member, int] = field(default_factory=dict, init=False)  # of those that are here
    _waiting: set[Member] = field(default_factory=set, init=False)
    _finished: set[Member] = field(default_factory=set, init=False)
    _stopping: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)
    quiet_at: float = field(default=0.0, init=False)  # when the last of all began to wait

    def enter(self, member: Member, say: Say, every_s: float) -> None:
        """Enter as `member`; waits while all are being stopped."""

        def begin() -> None:
            self._done[member] = self._slowest()

        self._wait(lambda: not self._stopping, begin, say, every_s)

    def leave(self, member: Member) -> None:
        with self.changed:
            self._done.pop(member, None)
            self._finished.discard(member)
            self._waiting.discard(member)
            self._note_quiet()

    def advance(self, member: Member) -> Standing:
        """`member` has done a step."""
        with self.changed:
            before = self._done.get(member, self._slowest())  # it may have left meanwhile
            ahead = before - self._slowest()
            if member in self._done:
                self._done[member] = before + 1
            self.changed.notify_all()
            return Standing(before, ahead)

    def stop(self) -> None:
        """Let nobody go on, from now on; those that are under way come to wait in the end."""
        with self.changed:
            self._stopping = True
            self._note_quiet()

    def go(self, ends: bool) -> None:
        """Let all go on; `ends`: also those that have finished."""
        with self.changed:
            self._stopping, self._closed = False, ends
            self.changed.notify_all()

    def wait_turn(self, member: Member, may: Callable[[], bool], say: Say, every_s: float) -> None:
        """Wait until `member` may do its next step."""

        def allowed() -> bool:
            near = self.bound is None or self._done[member] - self._slowest() <= self.bound
            return not self._stopping and (self._closed or (near and may()))

        self._await(member, allowed, say, every_s)

    def finish(self, member: Member, say: Say, every_s: float) -> None:
        """`member` has no more steps; wait until nobody has."""
        with self.changed:
            self._finished.add(member)
        self._await(member, lambda: self._closed, say, every_s)

    def wait_for(self, true: Callable[[], bool], say: Say, every_s: float) -> None:
        """Wait for something else, of which `wake` tells."""
        self._wait(true, lambda: None, say, every_s)

    def wait_until_quiet(self, timeout_s: float, or_when: Callable[[], bool] = never) -> bool:
        """True once all present sessions wait, as told; waits no longer than `or_when` is false."""
        with self.changed:
            self.changed.wait_for(lambda: self._is_quiet() or or_when(), timeout_s)
            return self._is_quiet()

    def members(self) -> list[Member]:
        with self.changed:
            return list(self._done)

    def finished(self) -> list[Member]:
        with self.changed:
            return list(self._finished)

    def wake(self) -> None:
        """Something has changed that a `may` asks for."""
        with self.changed:
            self.changed.notify_all()

    def _await(self, member: Member, until: Callable[[], bool], say: Say, every_s: float) -> None:
        with self.changed:
            self._waiting.add(member)
            self._note_quiet()
        self._wait(until, lambda: self._waiting.discard(member), say, every_s)

    def _wait(
        self, until: Callable[[], bool], then: Callable[[], None], say: Say, every_s: float
    ) -> None:
        """Nothing can change between `until` and `then`."""
        while True:
            with self.changed:
                if self.changed.wait_for(until, every_s):
                    then()
                    self.changed.notify_all()
                    return
            say()  # it may take long, or fail

    def _note_quiet(self) -> None:
        if self._is_quiet():
            self.quiet_at = self.now()
        self.changed.notify_all()

    def _is_quiet(self) -> bool:
        return self._stopping and self._waiting >= set(self._done)

    def _slowest(self) -> int:
        """Steps of the one that has done fewest, of those that go on."""
        going = [count for member, count in self._done.items() if member not in self._finished]
        return min(going, default=max(self._done.values(), default=0))
