"""Connections and threads of a run with a parameter server over packets.

`harness.virtual.crew` implements the same interfaces in virtual time.
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
from harness.engine.parameter_server.messages import Message

PORT = 29501  # inside the server's namespace


class MessageConnection(Protocol):
    """One end of a connection, such as `connection.TcpConnection`; its byte counts only grow."""

    sent_bytes: int
    received_bytes: int

    def send(self, message: Message, *tensors: Tensor) -> None: ...

    def receive(self) -> Message: ...

    def take(self, room: Tensor) -> Tensor: ...

    def close(self) -> None: ...


class Condition(Protocol):
    """The part of threading.Condition's interface that a server uses."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *error: Any) -> bool | None: ...

    def wait_for(self, predicate: Callable[[], bool]) -> bool: ...

    def notify_all(self) -> None: ...


class Door(Protocol):
    """Listener at which a server accepts trainers."""

    def accept(self) -> MessageConnection: ...


class Joinable(Protocol):
    """A thread that a caller can wait for."""

    def join(self) -> None: ...


class Transport(Protocol):
    """Connections between a server and its trainers, and the threads of either."""

    def door(self) -> Door: ...

    def join(self, reach_s: float) -> MessageConnection:
        """Connect to the server within `reach_s`; raise ConnectionLost if that fails."""
        ...

    def condition(self) -> Condition: ...

    def begin(self, work: Callable[[], None]) -> Joinable:
        """Start and return a thread that serves a trainer."""
        ...

    def together(self, works: Sequence[Callable[[], None]]) -> None:
        """Run all `works`, each on its own thread; raise the first failure at once."""
        ...


@dataclass
class Process:
    """The `Transport` of one process of a run over packets."""

    run_dir: Path
    address: str  # of the server
    clock: Any
    timeout_s: float  # real seconds that the server waits for a silent trainer
    port: int = PORT

    def door(self) -> Listening:
        return Listening(self.address, self.port, self.timeout_s)

    def join(self, reach_s: float) -> TcpConnection:
        return join(self.address, self.port, reach_s)

    def condition(self) -> Any:
        return threading.Condition()

    def begin(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def together(self, works: Sequence[Callable[[], None]]) -> None:
        cores, endings = torch.get_num_threads(), queue.Queue[BaseException | None]()

        def caught(work: Callable[[], None]) -> None:
            try:
                torch.set_num_threads(cores)  # a setting per thread, on which rounding depends
                work()
                endings.put(None)
            except BaseException as error:
                endings.put(error)

        for work in works:
            self.begin(partial(caught, work))
        for _ in works:
            if (failure := endings.get()) is not None:
                raise failure
