"""A run in virtual time with a parameter server: server and trainers as threads of one world.

They run the same programs that `harness.runner.server` starts as processes.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from harness.config.run import Run
from harness.engine.parameter_server.build import server_loop_of
from harness.engine.parameter_server.messages import (
    NUMBERS,
    Message,
    ProtocolError,
    decoded,
    encoded,
)
from harness.engine.training.rank_context import RankContext
from harness.engine.training.train import Loop
from harness.virtual.clock import VirtualClock
from harness.virtual.ranks import Ended, VirtualRun
from harness.virtual.wires import Begin, There, Travelling
from harness.virtual.world import Thread, World


@dataclass
class ByteStream:
    """One direction between two ranks. Ranks in `still` send in no time."""

    world: World
    begin: Begin
    ends: tuple[int, int]  # from a rank to another
    still: set[int]
    _sent: deque[tuple[Travelling, Tensor]] = field(default_factory=deque, init=False)

    def send(self, *tensors: Tensor) -> None:
        """Send all tensors in one message, with their present content."""
        now_s = self.world.now_s
        nbytes = sum(tensor.nbytes for tensor in tensors)
        quick = self.still.issuperset(self.ends)
        way = There(now_s) if quick else self.begin(now_s, *self.ends, nbytes)
        self._sent.extend((way, tensor.detach().clone()) for tensor in tensors)

    def take(self, room: Tensor) -> None:
        """Wait for the next tensor and copy it to `room`; ProtocolError if its size differs."""
        self.world.wait(lambda: self._sent[0][0].end_s if self._sent else None)
        content = self._sent.popleft()[1]
        if content.nbytes != room.nbytes:
            raise ProtocolError(f"expected {room.nbytes} bytes, got {content.nbytes}")
        room.view(-1).copy_(content.view(-1))


@dataclass
class VirtualConnection:
    """A `MessageConnection` of server and trainer in virtual time, which is never lost."""

    out: ByteStream
    back: ByteStream
    sent_bytes: int = field(default=0, init=False)
    received_bytes: int = field(default=0, init=False)

    def send(self, message: Message, *tensors: Tensor) -> None:
        full = [tensor for tensor in (encoded(message), *tensors) if tensor.numel()]
        self.out.send(*full)
        self.sent_bytes += sum(tensor.nbytes for tensor in full)

    def receive(self) -> Message:
        return decoded(self.take(torch.empty(NUMBERS, dtype=torch.float64)))

    def take(self, room: Tensor) -> Tensor:
        if room.numel():
            self.back.take(room)
            self.received_bytes += room.nbytes
        return room

    def close(self) -> None:
        return None


@dataclass
class SharedClock(VirtualClock):
    """One `harness.clock.Clock` of all ranks. While it stands still, so do the ranks in `still`."""

    still: set[int] = field(default_factory=set)
    ranks: int = 0
    ready: bool = field(default=False, init=False)

    def call_ready(self) -> None:
        self.ready = True
        self.still.clear()

    def pause(self, at: float) -> None:
        self.still.update(range(self.ranks))

    def resume(self) -> None:
        self.still.clear()

    def wait_running(self) -> None:
        self.world.wait_for(lambda: not self.still)

    def time_s(self) -> float:
        return self.now()


@dataclass
class VirtualCondition:
    """A threading.Condition for threads that take turns."""

    world: World

    def __enter__(self) -> bool:
        return True  # no other thread runs

    def __exit__(self, *error: object) -> None:
        return None

    def wait_for(self, predicate: Callable[[], bool]) -> bool:
        self.world.wait_for(predicate)
        return True

    def notify_all(self) -> None:
        return None


@dataclass
class Waited:
    """A thread that can be joined."""

    world: World
    thread: Thread

    def join(self) -> None:
        self.world.wait_for(lambda: self.thread.is_over)


@dataclass
class Lobby:
    """Entrance of the virtual server, where trainers join."""

    world: World
    waiting: list[VirtualConnection] = field(default_factory=list)

    def accept(self) -> VirtualConnection:
        self.world.wait_for(lambda: bool(self.waiting))
        return self.waiting.pop(0)


@dataclass
class VirtualTransport:
    """A `parameter_server.transport.Transport` of `rank`. `server` is the server's rank."""

    clock: SharedClock
    world: World
    message: Begin
    lobby: Lobby
    rank: int
    server: int

    def door(self) -> Lobby:
        return self.lobby

    def join(self, reach_s: float) -> VirtualConnection:
        there, back = (
            ByteStream(self.world, self.message, ends, self.clock.still)
            for ends in ((self.rank, self.server), (self.server, self.rank))
        )
        self.lobby.waiting.append(VirtualConnection(back, there))
        return VirtualConnection(there, back)

    def condition(self) -> VirtualCondition:
        return VirtualCondition(self.world)

    def begin(self, work: Callable[[], None], aside: bool = True) -> Waited:
        own = self.world.running
        thread = self.world.begin(work, own.rank, f"{own.name}, thread", own.now_s, aside)
        return Waited(self.world, thread)

    def together(self, works: Sequence[Callable[[], None]]) -> None:
        for thread in [self.begin(work, aside=False) for work in works]:
            thread.join()


@dataclass
class VirtualCrew(VirtualRun):
    """Run with a server as one more rank, whose shared clock starts once all have joined."""

    in_step: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._server, self._lobby = self._size, Lobby(self._world)
        everybody = {"still": set(range(self._size + 1)), "ranks": self._size + 1}
        self._shared_clock = self._clock(SharedClock, given=None, **everybody)

    def _begin(self) -> None:
        self._world.begin(self._serve, self._server, "parameter server", self._begins_s)
        for rank in range(self._size):
            self._world.begin(partial(self._be, rank), rank, f"trainer rank {rank}", self._begins_s)

    def _serve(self) -> None:
        torch.manual_seed(self.asked.seed)
        server_loop = server_loop_of(self.asked, self._context(self._server))
        server_loop.run()
        end_s = self._shared_clock.now()
        self._events.append("server_finished", end_s, **server_loop.store.counts())
        self.ended[self._server] = Ended(end_s, 0, False, server_loop.done, server_loop.aside_bytes)

    def _context(self, rank: int) -> RankContext:
        clock, server = self._shared_clock, self._server
        nobody: Any = None
        own = clock, self._world, self._message, self._lobby, rank, server
        return RankContext(
            run_dir=self.run_dir,
            rank=rank,
            leads=rank == server,
            clock=clock,
            workers=nobody,
            device=self._device,
            together=nobody,
            data=self._data,
            begin=self.begin,
            transport=VirtualTransport(*own),
        )

    def _mean(self, loop: Loop, took_s: float) -> float:
        return took_s  # no worker waits for the others

    def _drifted(self, rank: int, loop: Any) -> bool:
        return False  # no worker has weights of its own


def virtual(run: Run) -> type[VirtualRun]:
    """Return the class that runs `run` in virtual time, with or without a parameter server."""
    return VirtualCrew if run.parallel.servers else VirtualRun
