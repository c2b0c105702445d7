"""How the processes of a run with a parameter server reach each other, and what their threads are.

`harness.virtual.crew` has the same of virtual time.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from harness.engine.parameter_server.connection import Listening, TcpConnection, join
from harness.engine.parameter_server.dead_ranks import DeadRanks
from harness.engine.parameter_server.gate import Condition
from harness.engine.parameter_server.messages import Message

PORT = 29501  # inside the server's namespace


class MessageConnection(Protocol):
    """One end of a connection, such as `connection.TcpConnection`; its counts only grow."""

    sent_bytes: int
    received_bytes: int

    @property
    def confirmed_bytes(self) -> int: ...

    def send(self, message: Message, *tensors: Tensor) -> None: ...

    def receive(self) -> Message: ...

    def take(self, room: Tensor) -> Tensor: ...

    def close(self) -> None: ...


class Door(Protocol):
    """Entrance of a server, where sessions join."""

    def joined(self) -> Sequence[MessageConnection]:
        """Connections made since the last call."""
        ...

    def has_come(self) -> bool:
        """True if somebody is known to wait to be let in."""
        ...


class Ending(Protocol):
    """A thread."""

    def join(self, timeout: float) -> None: ...


class Transport(Protocol):
    """Connections between a server and its trainers, and their threads."""

    timeout_s: float  # real, of silence in a session

    def is_lost(self, rank: int) -> bool:
        """True if a trainer's process will not come back."""
        ...

    def door(self) -> Door: ...

    def join(self, reach_s: float) -> MessageConnection:
        """A new session with the server within `reach_s`. ConnectionLost: it is not there."""
        ...

    def condition(self) -> Condition:
        """Build a condition for this process's threads."""
        ...

    def begin(self, work: Callable[[], None]) -> Ending:
        """A thread that serves others."""
        ...

    def together(self, works: Sequence[Callable[[], None]]) -> None:
        """Do all of `works`, each on a thread; raises the first failure as soon as it is there."""
        ...


@dataclass
class Process:
    """A `Transport` over packets."""

    run_dir: Path
    address: str  # of the server
    clock: Any
    timeout_s: float
    dead_ranks: DeadRanks
    port: int = PORT  # where the server listens

    def is_lost(self, rank: int) -> bool:
        return rank in self.dead_ranks

    def door(self) -> Listening:
        return Listening(self.address, self.port, self.timeout_s)

    def join(self, reach_s: float) -> TcpConnection:
        return join(self.address, self.port, self.timeout_s, reach_s)

    def condition(self) -> threading.Condition:
        return threading.Condition()

    def begin(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def together(self, works: Sequence[Callable[[], None]]) -> None:
        cores, ended = torch.get_num_threads(), queue.Queue[BaseException | None]()

        def kept(work: Callable[[], None]) -> None:
            try:
                torch.set_num_threads(cores)  # a thread has a number of its own, which rounds
                work()
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        threads = [self.begin(partial(kept, work)) for work in works]
        for _ in threads:
            if (failure := ended.get()) is not None:
                raise failure
        for thread in threads:
            thread.join()
