"""The server's own loop: lets sessions in, stops all of them to evaluate and to save, ends."""

import threading
import time
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from harness.engine.parameter_server.connection import ConnectionLost
from harness.engine.parameter_server.messages import BUFFERS, SAVE, ProtocolError
from harness.engine.parameter_server.parameter_store import ParameterStore
from harness.engine.parameter_server.session import Session
from harness.engine.parameter_server.transport import Ending, MessageConnection, Transport
from harness.engine.training.rest import Rest
from harness.engine.training.together import Together
from harness.records.checkpoint import Files

POLL_S = 0.01  # between looks at who has asked for a session


class TrainerLost(RuntimeError):
    """A trainer that the others cannot do without is gone."""


@dataclass
class ServerLoop(Together):
    """Runs until every trainer has done its steps, or is lost; all stop where the last waits."""

    store: ParameterStore
    transport: Transport
    rest: Rest = field(init=False)
    aside_bytes: list[int] = field(default_factory=lambda: [0, 0], init=False)  # of ended sessions
    overruns: int = field(default=0, init=False)  # it has no pace
    lost: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.door, self.timeout_s = self.transport.door(), self.transport.timeout_s
        self._threads: list[Ending] = []
        self._failure: BaseException | None = None
        self._counting = threading.Lock()

    def run(self) -> None:
        """Returns when all that came has left."""
        gate, heard = self.store.gate, time.monotonic()
        while not self.store.ends:
            self._let_in()
            if self._failure is not None:
                raise self._failure
            if gate.wait_until_quiet(POLL_S, self._is_due):
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

    @property
    def done(self) -> int:
        """Rounds."""
        return self.store.rounds()

    def _let_in(self) -> None:
        for connection in self.door.joined():
            self._threads.append(self.transport.begin(partial(self._serve, connection)))

    def _is_due(self) -> bool:
        """True if there is something to do beside stops."""
        finished, threads = len(self.store.gate.finished()), self.store.layout.threads
        all_done = finished == self.store.workers * threads
        return all_done or self._failure is not None or self.door.has_come()

    def _serve(self, connection: MessageConnection) -> None:
        """A session's thread; what ends it early is told."""
        session = Session(self.store, connection, self.timeout_s)
        try:
            session.serve()
        except (ConnectionLost, ProtocolError) as error:
            self._leave_early(session, error)
        except BaseException as error:  # of the server itself
            self._failure = error
        finally:
            self.store.gate.leave(session)
            with self._counting:
                self.aside_bytes[0] += connection.confirmed_bytes
                self.aside_bytes[1] += connection.received_bytes
            connection.close()

    def _leave_early(self, session: Session, error: Exception) -> None:
        store, rank, thread = self.store, session.rank, session.thread
        store.events.append(
            "session_lost", store.clock.time_s(), rank=rank, thread=thread, error=str(error)
        )
        if isinstance(error, ProtocolError):
            store.refused["protocol"] += 1
        if store.layout.is_sync and not store.ends and rank >= 0:
            lost = TrainerLost(f"the session of rank {rank} is lost, which mode=sync waits for")
            lost.__cause__ = error
            self._failure = lost

    def _are_done(self, finished: list, silent_s: float) -> bool:
        """True if nobody will push any more; who was silent for too long counts as lost."""
        threads, workers = self.store.layout.threads, self.store.workers
        done = {rank: sum(each.rank == rank for each in finished) for rank in range(workers)}
        missing = {rank for rank, count in done.items() if count < threads}
        if not missing and len(self.store.gate.members()) == len(finished):
            return True
        if not self.store.clock.ready or len(self.store.gate.members()) > len(finished):
            return False
        is_lost = self.transport.is_lost
        gone = {rank for rank in missing if is_lost(rank) or silent_s > self.timeout_s}
        if gone != missing:
            return False
        for rank in gone:
            if not is_lost(rank):
                how = f"did not come back within {self.timeout_s:g} s"
                self.store.events.append("trainer_lost", rank=rank, how=how)
        self.lost = gone
        if len(gone) == workers:
            raise TrainerLost("every trainer is lost")
        return True

    def _stop(self, last: bool) -> None:
        """Evaluate and save, if that is due, while the clock stands still and everybody waits."""
        store, gate = self.store, self.store.gate
        store.ends = self.rest.take(self.done, gate.quiet_at, None, last)
        gate.go(ends=store.ends)

    def stop(self, arrived: float) -> None:
        self.store.clock.pause(arrived)

    def go_on(self, arrived: float) -> None:
        self.store.clock.resume()

    def gather(self, mine: Files) -> list[Files]:
        """The files of all that are here; who is lost leaves its own out."""
        told = (self._asked(session, SAVE) for session in self._sessions())
        return [
            mine,
            *(_files(content.numpy().tobytes()) for content in told if content is not None),
        ]

    def buffers(self) -> Tensor:
        """Buffers of the first trainer's model that answers: statistics of its batches."""
        for session in self._sessions():
            if (content := self._asked(session, BUFFERS)) is not None:
                return content
        raise TrainerLost("no trainer is left to ask for the buffers of its model")

    def _asked(self, session: Session, what: int) -> Tensor | None:
        try:
            return session.ask(what, self.rest.done)
        except (ConnectionLost, ProtocolError):
            session.connection.close()  # its own thread tells
            return None

    def _sessions(self) -> list[Session]:
        """Sessions in the order of ranks and threads."""
        members = [each for each in self.store.gate.members() if isinstance(each, Session)]
        return sorted(members, key=lambda each: (each.rank, each.thread))


def _files(content: bytes) -> Files:
    try:
        name, _, digest = content.decode().partition(" ")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a file's name and digest must be text: {error}") from error
    return {name: digest}
