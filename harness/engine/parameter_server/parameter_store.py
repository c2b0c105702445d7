"""State of the server: it applies pushes in order and blocks threads that must wait."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from harness.clock import Clock
from harness.config.server import Server
from harness.engine.parameter_server.captured import Contribution
from harness.engine.parameter_server.messages import ProtocolError, Push, Settle
from harness.engine.parameter_server.server_model import ServerModel
from harness.engine.parameter_server.transport import Condition, MessageConnection
from harness.records.run_directory import Pushed, Table


@dataclass(eq=False, kw_only=True)
class TrainerThread:
    """The server's record of a trainer thread; `rank` and `thread` are -1 before its Hello."""

    connection: MessageConnection
    rank: int = -1
    thread: int = -1
    done: int = field(default=0, init=False)  # steps that it has pushed in this run
    waits: bool = field(default=False, init=False)
    finished: bool = field(default=False, init=False)  # it has no more steps to do
    counted: tuple[int, int] = field(default=(0, 0), init=False)  # bytes until its last push


class Pending(NamedTuple):
    """A push of a round whose other pushes have not arrived yet."""

    thread: TrainerThread
    push: Push
    content: Contribution
    lock_wait_s: float


@dataclass
class Vote:
    """One agreement of all trainers; `value` is None until every rank has proposed one."""

    proposals: dict[int, float] = field(default_factory=dict)
    value: float | None = None


@dataclass
class ParameterStore:
    """The server's weights and all trainers' progress, guarded by the lock of `changed`."""

    model: ServerModel
    layout: Server
    workers: int
    steps: int  # of each worker
    clock: Clock
    table: Table
    changed: Condition
    is_due: Callable[[int], bool] = field(init=False)  # to evaluate or save, by rounds done
    threads: list[TrainerThread] = field(default_factory=list, init=False)
    ends: bool = field(default=False, init=False)  # the run ends: threads do no more steps
    quiet_at: float = field(default=0.0, init=False)  # when the last thread began to wait
    failure: BaseException | None = field(default=None, init=False)
    staleness: Counter[int] = field(default_factory=Counter, init=False)
    drains: int = field(default=0, init=False)
    _round: dict[int, Pending] = field(default_factory=dict, init=False)  # by rank
    _vote: Vote = field(default_factory=Vote, init=False)
    _stopping: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.pushed = torch.zeros(self.workers, dtype=torch.int64)  # steps, by rank

    def rounds(self) -> int:
        """Return the number of completed rounds; a round is one push per trainer."""
        return self.model.version // (1 if self.layout.is_sync else self.workers)

    def push(self, thread: TrainerThread, push: Push, content: Contribution) -> None:
        """Apply a push, alone or with its round; return when `thread` may do its next step.

        Raise ProtocolError for a push that cannot be applied.
        """
        fault = self.model.fault(content)  # outside of the lock, so that other pushes proceed
        if not 0 <= push.step < self.steps or not 0 <= push.version <= self.model.version:
            fault = f"version {push.version} is not one of its weights"
        if fault:
            raise ProtocolError(f"the push of step {push.step} cannot be applied: {fault}")
        asked = self.clock.now()
        with self.changed:
            lock_wait_s = (self.clock.now() - asked) / self.clock.dilation
            self._round[thread.rank] = Pending(thread, push, content, lock_wait_s)
            version = self.model.version
            if len(self._round) == (self.workers if self.layout.is_sync else 1):
                self._apply([self._round[rank] for rank in sorted(self._round)])
                self._round.clear()
            self._wait(thread, lambda: self._may_go_on(version))

    def settle(self, thread: TrainerThread, settle: Settle) -> float:
        """Return the minimum or mean proposal, when every trainer has made one."""
        with self.changed:
            vote = self._vote
            vote.proposals[thread.rank] = settle.value
            if len(vote.proposals) == self.workers:
                self._vote, values = Vote(), vote.proposals.values()
                vote.value = min(values) if settle.is_min else sum(values) / len(values)
                self.changed.notify_all()
            self.changed.wait_for(lambda: vote.value is not None)
            assert vote.value is not None
            return vote.value

    def finish(self, thread: TrainerThread) -> None:
        """Record that `thread` has no more steps; return when the run ends."""
        with self.changed:
            thread.finished = True
            self._wait(thread, lambda: self.ends)

    def wait_until_quiet(self) -> bool:
        """Wait until all threads are blocked for an evaluation, a checkpoint or the end.

        Return True if no thread has steps left. If a thread fails, raise its failure at once.
        """

        def is_quiet() -> bool:
            due = self._stopping or all(thread.finished for thread in self.threads)
            return due and all(thread.waits for thread in self.threads)

        with self.changed:
            self.changed.wait_for(lambda: self.failure is not None or is_quiet())
            if self.failure is not None:
                raise self.failure
            return all(thread.finished for thread in self.threads)

    def go_on(self, ends: bool) -> None:
        """Release all threads; if `ends` is True they do no further step."""
        with self.changed:
            self.ends, self._stopping = ends, False
            self.changed.notify_all()

    def fail(self, failure: BaseException) -> None:
        """Record the first failure of a thread, which ends the run."""
        with self.changed:
            self.failure = self.failure or failure
            self.changed.notify_all()

    def counts(self) -> dict[str, Any]:
        """Return statistics of all pushes, for the record of the run."""
        pushes = sum(self.staleness.values())
        total = sum(value * count for value, count in self.staleness.items())
        return {
            "applied": pushes,
            "version": self.model.version,
            "staleness_mean": total / pushes if pushes else None,
            "staleness_max": max(self.staleness, default=None),
            "drains": self.drains,
        }

    def _may_go_on(self, version: int) -> bool:
        """Return True if a thread whose push met the weights of `version` may do its next step."""
        return not self._stopping and (self.ends or self.model.version > version)

    def _wait(self, thread: TrainerThread, until: Callable[[], bool]) -> None:
        thread.waits, self.quiet_at = True, self.clock.now()
        self.changed.notify_all()
        self.changed.wait_for(until)
        thread.waits = False

    def _apply(self, pushes: list[Pending]) -> None:
        """Make one update from `pushes`, record each, and stop all threads if a stop is due."""
        before = self.model.version
        self.model.apply([pending.content for pending in pushes])
        for pending in pushes:
            self._record(pending, before)
        self._stopping = self._stopping or self.is_due(self.rounds())

    def _record(self, pending: Pending, version: int) -> None:
        thread, push, _, lock_wait_s = pending
        counts = [thread.done for thread in self.threads if not thread.finished]
        ahead = thread.done - min(counts, default=max(thread.done for thread in self.threads))
        thread.done += 1
        self.pushed[thread.rank] += 1
        staleness = version - push.version
        self.staleness[staleness] += 1
        self.drains += push.drains
        up, down = thread.counted
        thread.counted = thread.connection.received_bytes, thread.connection.sent_bytes
        row = Pushed(
            time_s=self.clock.time_s() or 0.0,
            rank=thread.rank,
            thread=thread.thread,
            step=push.step,
            pulled_version=push.version,
            version=version,
            staleness=staleness,
            ahead=ahead,
            entries=push.entries,
            achieved_density=push.entries / self.model.vector.numel(),
            residual_norm=push.residual_norm,
            drains=push.drains,
            sent_bytes=thread.counted[0] - up,
            received_bytes=thread.counted[1] - down,
            lock_wait_s=lock_wait_s,
        )
        self.table.append(row)
