"""The server's main loop: it accepts trainers, and stops all of them to evaluate, save and end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from harness.engine.parameter_server.connection import ConnectionLost
from harness.engine.parameter_server.messages import BUFFERS, SAVE, ProtocolError
from harness.engine.parameter_server.parameter_store import ParameterStore
from harness.engine.parameter_server.session import Session
from harness.engine.parameter_server.transport import Transport
from harness.engine.training.rest import Rest
from harness.engine.training.together import Together
from harness.records.checkpoint import Files


class TrainerLost(RuntimeError):
    """A trainer is gone or sent invalid data; this ends the run."""


@contextmanager
def naming(session: Session) -> Iterator[None]:
    """Context manager: raise TrainerLost, with the session's rank, if its connection fails."""
    try:
        yield
    except (ConnectionLost, ProtocolError) as error:
        raise TrainerLost(f"trainer rank {session.rank} is lost: {error}") from None


@dataclass
class ServerLoop(Together):
    """Loop of the parameter server, which serves all trainers' threads until they are done."""

    store: ParameterStore
    transport: Transport
    rest: Rest = field(init=False)
    sessions: list[Session] = field(default_factory=list, init=False)
    overruns: int = field(default=0, init=False)  # always 0, as a server has no pace

    def __post_init__(self) -> None:
        self.door = self.transport.door()

    def run(self) -> None:
        """Serve until the run ends; raise TrainerLost if a trainer dies."""
        store, clock = self.store, self.store.clock
        while len(self.sessions) < store.workers * store.layout.threads:
            session = Session(connection=self.door.accept(), store=store)
            session.greet()
            self.sessions.append(session)
        # Virtual time serves threads that are due at the same time in this order.
        self.sessions.sort(key=lambda session: (session.thread, session.rank))
        store.threads.extend(self.sessions)
        serving = [self.transport.begin(partial(self._serve, each)) for each in self.sessions]
        clock.call_ready()
        while not store.ends:
            last = store.wait_until_quiet()
            store.go_on(ends=self.rest.take(self.done, store.quiet_at, None, last))
        for thread in serving:
            thread.join()
        if store.failure is not None:
            raise store.failure

    @property
    def done(self) -> int:
        """Number of completed rounds."""
        return self.store.rounds()

    @property
    def aside_bytes(self) -> list[int]:
        """Bytes sent and received by the server."""
        connections = [session.connection for session in self.sessions]
        return [sum(c.sent_bytes for c in connections), sum(c.received_bytes for c in connections)]

    def _serve(self, session: Session) -> None:
        try:
            with naming(session):
                session.serve()
        except BaseException as error:
            self.store.fail(error)
        finally:
            session.connection.close()

    def stop(self, arrived: float) -> None:
        self.store.clock.pause(arrived)

    def go_on(self, arrived: float) -> None:
        self.store.clock.resume()

    def gather(self, mine: Files) -> list[Files]:
        """Have every thread write its part of a checkpoint; return everyone's files, ours first."""
        return [mine, *(self._files(session) for session in self.sessions)]

    def buffers(self) -> Tensor:
        """Return the buffers of rank 0's model, which are statistics of its batches."""
        with naming(self.sessions[0]):
            return self.sessions[0].ask(BUFFERS, self.rest.done)

    def _files(self, session: Session) -> Files:
        with naming(session):
            content = session.ask(SAVE, self.rest.done).numpy().tobytes()
        name, _, digest = content.decode(errors="replace").partition(" ")
        return {name: digest}
