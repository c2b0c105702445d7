"""The server's own loop: lets sessions in, stops all of them to evaluate and to save, ends."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from harness.parameter_server.line import Line, LineLost, Listening
from harness.parameter_server.messages import BUFFERS, SAVE, ProtocolError
from harness.parameter_server.service import Service
from harness.parameter_server.session import Session
from harness.training.checkpoint import Files

POLL_S = 0.01  # between looks at who has asked for a session


class TrainerLost(RuntimeError):
    """A trainer that the others cannot do without is gone."""


@dataclass
class Serving:
    """Runs until every trainer has done its steps, or is lost.

    `evaluate` takes the rounds done and what asks for a trainer's buffers, and returns the metrics,
    which it has written. `save` takes the rounds and the files that trainers have written.
    """

    service: Service
    listening: Listening
    timeout_s: float  # of silence
    is_lost: Callable[[int], bool]  # whether a rank's process will not come back
    evaluate: Callable[[int, Callable[[], Tensor]], dict[str, float]]
    save: Callable[[int, list[Files]], None]
    sent_bytes: int = field(default=0, init=False)  # of sessions that are over
    received_bytes: int = field(default=0, init=False)
    lost: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._evaluated = self.service.weights.version
        self._counting = threading.Lock()

    def run(self) -> None:
        """Returns when all that came has left."""
        gate, heard = self.service.gate, time.monotonic()
        while not self.service.ends:
            self._let_in()
            if self._failure is not None:
                raise self._failure
            if gate.wait_until_quiet(POLL_S):
                self._stop(last=False)
            members, finished = gate.members(), gate.finished()
            if len(members) > len(finished):
                heard = time.monotonic()
            if self._are_done(finished, silent_s=time.monotonic() - heard):
                gate.stop()
                self._stop(last=True)
        deadline = time.monotonic() + self.timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _let_in(self) -> None:
        for line in self.listening.joined():
            thread = threading.Thread(target=self._serve, args=(line,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, line: Line) -> None:
        """A session's thread; what ends it early is told."""
        session = Session(self.service, line, self.timeout_s)
        try:
            session.serve()
        except (LineLost, ProtocolError) as error:
            self._leave_early(session, error)
        except BaseException as error:  # of the server itself
            self._failure = error
        finally:
            self.service.gate.leave(session)
            with self._counting:
                self.sent_bytes += line.confirmed_bytes
                self.received_bytes += line.received_bytes
            line.close()

    def _leave_early(self, session: Session, error: Exception) -> None:
        service, rank, thread = self.service, session.rank, session.thread
        service.events.append(
            "session_lost", service.clock.time_s(), rank=rank, thread=thread, error=str(error)
        )
        if isinstance(error, ProtocolError):
            service.refused["protocol"] += 1
        if service.is_sync and not service.ends and rank >= 0:
            lost = TrainerLost(f"the session of rank {rank} is lost, which mode=sync waits for")
            lost.__cause__ = error
            self._failure = lost

    def _are_done(self, finished: list, silent_s: float) -> bool:
        """Whether nobody will push any more; who was silent for too long counts as lost."""
        threads, workers = self.service.threads, self.service.workers
        done = {rank: sum(each.rank == rank for each in finished) for rank in range(workers)}
        missing = {rank for rank, count in done.items() if count < threads}
        if not missing and len(self.service.gate.members()) == len(finished):
            return True
        if not self.service.clock.ready or len(self.service.gate.members()) > len(finished):
            return False
        gone = {rank for rank in missing if self.is_lost(rank) or silent_s > self.timeout_s}
        if gone != missing:
            return False
        for rank in gone:
            if not self.is_lost(rank):
                how = f"did not come back within {self.timeout_s:g} s"
                self.service.events.append("trainer_lost", rank=rank, how=how)
        self.lost = gone
        if len(gone) == workers:
            raise TrainerLost("every trainer is lost")
        return True

    def _stop(self, last: bool) -> None:
        """Evaluate and save, if that is due, while the clock stands still and everybody waits."""
        service, gate = self.service, self.service.gate
        service.clock.pause(gate.quiet_at)
        done, stops = service.rounds(), service.stops
        fresh = range(service.stopped_at + 1, done + 1)
        service.stopped_at = done
        metrics = {}
        due = any(map(stops.evaluates, fresh)) or last
        if due and self._evaluated != service.weights.version:
            self._evaluated = service.weights.version
            metrics = self.evaluate(done, self._buffers)
        last = last or stops.ends(done, metrics)
        if any(stops.saves(each, last=False) for each in fresh) or stops.saves(done, last):
            self._save(done)
        service.ends = last
        if not last:
            service.clock.resume()
        gate.go(ends=last)

    def _save(self, done: int) -> None:
        """A rank that is lost leaves its part out, and nobody can go on from there."""
        parts: dict[int, Files] = {}
        for session in self._sessions():
            if session.rank not in parts:
                try:
                    parts[session.rank] = _files(session.ask(SAVE, done).numpy().tobytes())
                except LineLost:
                    continue  # its own thread tells
        self.save(done, [parts[rank] for rank in sorted(parts)])

    def _buffers(self) -> Tensor:
        """Of the model of the first trainer that answers: statistics of its batches."""
        for session in self._sessions():
            try:
                return session.ask(BUFFERS, 0)
            except LineLost:
                continue  # its own thread tells
        raise TrainerLost("no trainer is left to ask for the buffers of its model")

    def _sessions(self) -> list[Session]:
        """In the order of ranks and threads."""
        members = [each for each in self.service.gate.members() if isinstance(each, Session)]
        return sorted(members, key=lambda each: (each.rank, each.thread))


def _files(content: bytes) -> Files:
    name, _, digest = content.decode().partition(" ")
    return {name: digest}
