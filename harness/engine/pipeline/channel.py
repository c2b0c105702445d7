"""Messages to and from one neighbour in a pipeline, with every byte counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from harness.engine.exchange.backends import MESSAGES


class PeerLost(RuntimeError):
    """Error: a neighbour is silent or gone. `rank` is its number in the run."""

    def __init__(self, rank: int, said: str) -> None:
        super().__init__(said)
        self.rank = rank


class Channel(Protocol):
    """Rank's end of a connection to a neighbour: ordered messages, and sends that do not wait."""

    sent_bytes: int
    received_bytes: int

    def send(self, message: Tensor) -> None:
        """Send `message`, uint8 [bytes], which must not change before `flush` returns."""
        ...

    def receive(self, nbytes: int) -> Tensor:
        """Wait for the next message, and return it as uint8 [nbytes]."""
        ...

    def flush(self) -> None:
        """Wait until everything sent so far has left."""
        ...


@dataclass
class GroupChannel:
    """This rank's end of a connection to rank `peer` of `group`, whose backend is `MESSAGES`.

    A neighbour that does not answer within the group's timeout, or whose end is closed, is a
    `PeerLost`; it is told by its `name`.

    Sending does not wait: two neighbours that send first would wait for each other, as a message
    only leaves when it is asked for. One thread sends, and one, maybe another, receives. Messages
    of a direction arrive in their order. `sent_bytes` and `received_bytes` only grow; they are of
    what was handed over, without what the backend and TCP add, which the shapers count.
    """

    group: dist.ProcessGroup
    peer: int
    name: str = "the other side"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    sent_bytes: int = field(default=0, init=False)
    received_bytes: int = field(default=0, init=False)
    _leaving: list[tuple[dist.Work, Tensor]] = field(default_factory=list, init=False)

    def send(self, message: Tensor) -> None:
        message = message.cpu()
        work = MESSAGES.send(self.group, message, self.peer)
        self._leaving.append((work, message))  # whose memory is read until it has left
        self.sent_bytes += message.numel()

    def receive(self, nbytes: int) -> Tensor:
        message = torch.empty(nbytes, dtype=torch.uint8)
        work = MESSAGES.receive(self.group, message, self.peer)
        with self._naming("nothing came from"):
            work.wait()
        self.received_bytes += nbytes
        return message.to(self.device)

    def flush(self) -> None:
        with self._naming("nothing more was taken by"):
            for work, _ in self._leaving:
                work.wait()
        self._leaving.clear()

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        """Name the neighbour in an error of the backend."""
        try:
            yield
        except RuntimeError as error:
            rank = dist.get_global_rank(self.group, self.peer)
            raise PeerLost(rank, f"{what} {self.name}: {error}") from None
