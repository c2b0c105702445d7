"""What a server does with pushes: none is applied twice, none that is at fault; all are counted."""

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from harness.clock import Clock
from harness.config.server import Server
from harness.engine.parameter_server.captured import Contribution
from harness.engine.parameter_server.gate import Gate
from harness.engine.parameter_server.messages import ProtocolError, Push, Settle
from harness.engine.parameter_server.server_model import ServerModel
from harness.records.run_directory import Events, Pushed, Table

May = Callable[[], bool]


class Pusher(Hashable, Protocol):
    """A session, as far as the store knows it."""

    rank: int
    thread: int

    def bytes_since_push(self) -> tuple[int, int]:
        """Bytes received and sent since the last call."""
        ...


class Pending(NamedTuple):
    """A push that waits for those of the other trainers."""

    session: Pusher
    push: Push
    content: Contribution | None  # None: it was refused
    lock_wait_s: float


@dataclass
class Settling:
    """Vote on a value that all trainers share, by rank until all have voted."""

    values: dict[int, float] = field(default_factory=dict)
    value: float | None = None


@dataclass
class ParameterStore:
    """The weights, and what sessions may do with them. `weights.lock` is of everything below it."""

    weights: ServerModel
    gate: Gate
    layout: Server
    workers: int
    steps: int  # of each
    clock: Clock
    table: Table
    events: Events
    ends: bool = False  # no more steps are to be done
    is_due: Callable[[int], bool] = field(init=False)  # to rest, after so many rounds
    refused: Counter[str] = field(default_factory=Counter, init=False)
    staleness: Counter[int] = field(default_factory=Counter, init=False)
    drains: int = field(default=0, init=False)
    _settling: Settling = field(default_factory=Settling, init=False)
    _pending: dict[int, Pending] = field(default_factory=dict, init=False)  # by rank
    _places: set[tuple[int, int]] = field(default_factory=set, init=False)  # rank, thread

    def __post_init__(self) -> None:
        self.applied = torch.zeros(self.workers, self.steps, dtype=torch.bool)
        self._joining = threading.Lock()

    def rounds(self) -> int:
        """Number of rounds done, each of one push per trainer."""
        return self.weights.version // (1 if self.layout.is_sync else self.workers)

    def first_step(self, rank: int) -> int:
        """The one after the last that this rank has pushed."""
        with self.weights.lock:
            done = self.applied[rank].nonzero()
            return int(done[-1]) + 1 if len(done) else 0

    def joined(self, session: Pusher) -> None:
        place = session.rank, session.thread
        self.events.append(
            "session_opened", self.clock.time_s(), rank=session.rank, thread=session.thread
        )
        with self._joining:
            before = len(self._places)
            self._places.add(place)
            if before < len(self._places) == self.workers * self.layout.threads:
                self.clock.call_ready()

    def settle(self, session: Pusher, asked: Settle) -> Settling:
        """Settling that gets its value once every trainer has asked."""
        with self.weights.lock:
            settling = self._settling
            settling.values[session.rank] = asked.value
            if len(settling.values) == self.workers:
                self._settling, values = Settling(), settling.values.values()
                settling.value = min(values) if asked.is_min else sum(values) / len(values)
        self.gate.wake()
        return settling

    def take_in(self, session: Pusher, push: Push, content: Contribution) -> tuple[bool, May]:
        """Apply a push, or refuse it; and what must be true before its thread goes on."""
        fault = self.weights.fault(content)  # other pushes are applied meanwhile
        asked = self.clock.now()
        with self.weights.lock:
            waited_s = self.clock.now() - asked
            fault = fault or self._misplaced(session, push)
            if fault:
                self.refuse(session, push, fault)
            pending = Pending(session, push, None if fault else content, waited_s)
            if not self.layout.is_sync:
                return self._apply([pending]), lambda: True
            self._pending[session.rank] = pending
            version = self.weights.version
            if len(self._pending) == self.workers:
                self._apply([self._pending[rank] for rank in range(self.workers)])
                self._pending.clear()
        return not fault, lambda: self.weights.version > version or self.ends

    def refuse(self, session: Pusher, push: Push, reason: str) -> None:
        self.refused[reason] += 1
        who = {"rank": session.rank, "thread": session.thread, "step": push.step}
        self.events.append("push_refused", self.clock.time_s(), reason=reason, **who)

    def told(self) -> dict[str, Any]:
        """Counts, for the record of the run."""
        pushes = sum(self.staleness.values())
        stale = sum(value * count for value, count in self.staleness.items())
        return {
            "applied": pushes,
            "refused": dict(self.refused),
            "missing": self.workers * self.steps - int(self.applied.sum()),
            "version": self.weights.version,
            "staleness_mean": stale / pushes if pushes else None,
            "staleness_max": max(self.staleness, default=None),
            "drains": self.drains,
        }

    def _misplaced(self, session: Pusher, push: Push) -> str | None:
        if not 0 <= push.step < self.steps or not 0 <= push.version <= self.weights.version:
            return "step"
        return "twice" if self.applied[session.rank, push.step] else None

    def _apply(self, pushes: list[Pending]) -> bool:
        """One update by those that were not refused; everybody is told, and stopped if it is due.

        A round whose pushes were all refused is an update by nothing. Whether there was another.
        """
        good = [each for each in pushes if each.content is not None]
        before = self.weights.version
        if good and not self._applied(good):
            good, pushes = [], [each._replace(content=None) for each in pushes]
        if not good and self.layout.is_sync:
            self.weights.version += 1
        for each in pushes:
            ahead = self.gate.advance(each.session).ahead
            if each.content is not None:
                self._record(each, before, ahead)
        if self.is_due(self.rounds()):
            self.gate.stop()
        self.gate.wake()
        return bool(good)

    def _applied(self, good: list[Pending]) -> bool:
        """Apply the contributions; False if one is malformed, which is refused."""
        try:
            self.weights.apply([each.content for each in good if each.content])
        except (ProtocolError, IndexError, ValueError, RuntimeError) as error:
            if self.layout.is_sync:  # whose trainers cannot go on without
                raise
            for each in good:
                self.refuse(each.session, each.push, f"unreadable: {error}")
            return False
        return True

    def _record(self, one: Pending, version: int, ahead: int) -> None:
        session, push = one.session, one.push
        self.applied[session.rank, push.step] = True
        staleness = version - push.version
        self.staleness[staleness] += 1
        self.drains += push.drains
        up, down = session.bytes_since_push()
        row = Pushed(
            time_s=self.clock.time_s() or 0.0,
            rank=session.rank,
            thread=session.thread,
            step=push.step,
            pulled_version=push.version,
            version=version,
            staleness=staleness,
            ahead=ahead,
            entries=push.entries,
            achieved_density=push.entries / self.weights.vector.numel(),
            residual_norm=push.residual_norm,
            drains=push.drains,
            sent_bytes=up,
            received_bytes=down,
            lock_wait_s=one.lock_wait_s / self.clock.dilation,
        )
        self.table.append(row)
