"""Messages between two ranks in virtual time. Each leaves once its receiver has asked for it."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from harness.virtual.world import World


class Travelling(Protocol):
    """A message under way."""

    @property
    def end_s(self) -> float | None:
        """Arrival in emulated seconds, or None while unknown."""
        ...


class There(NamedTuple):
    """Transfer whose end is known from the start."""

    end_s: float | None


Begin = Callable[[float, int, int, int], Travelling]  # at a time, from a rank to another, bytes


@dataclass
class Message:
    """`content`, uint8 [bytes], copied when it was sent."""

    content: Tensor
    way: Travelling | None = None  # None until the receiver asks for it

    def end_s(self) -> float | None:
        return self.way.end_s if self.way else None


@dataclass
class PendingReceive:
    """Receiver's request for a message of a number of bytes."""

    nbytes: int
    message: Message | None = None

    def end_s(self) -> float | None:
        return self.message.end_s() if self.message else None


@dataclass
class OneWay:
    """One direction between two ranks, which keeps the order of messages."""

    world: World
    begin: Callable[[int], Travelling]  # starts a message of that many bytes now
    _sent: deque[Message] = field(default_factory=deque, init=False)
    _asked: deque[PendingReceive] = field(default_factory=deque, init=False)

    def send(self, content: Tensor) -> Message:
        message = Message(content.clone())  # the sender may write to its own afterwards
        self._sent.append(message)
        self._match()
        return message

    def receive(self, nbytes: int) -> Tensor:
        asked = PendingReceive(nbytes)
        self._asked.append(asked)
        self._match()
        self.world.wait(asked.end_s)
        assert asked.message is not None
        return asked.message.content

    def _match(self) -> None:
        """Start the messages whose receive is posted, at the present time.

        The later of send and receive calls this, since threads run in order of time. Raise
        ValueError if their sizes differ.
        """
        while self._sent and self._asked:
            message, asked = self._sent.popleft(), self._asked.popleft()
            if message.content.numel() != asked.nbytes:
                got = message.content.numel()
                raise ValueError(f"a message of {asked.nbytes} bytes was expected, got {got}")
            message.way = self.begin(asked.nbytes)
            asked.message = message


@dataclass
class VirtualChannel:
    """A `harness.engine.pipeline.channel.Channel` in virtual time."""

    world: World
    out: OneWay
    back: OneWay
    device: torch.device
    sent_bytes: int = field(default=0, init=False)
    received_bytes: int = field(default=0, init=False)
    _leaving: list[Message] = field(default_factory=list, init=False)

    def send(self, message: Tensor) -> None:
        self._leaving.append(self.out.send(message))
        self.sent_bytes += message.numel()

    def receive(self, nbytes: int) -> Tensor:
        message = self.back.receive(nbytes)
        self.received_bytes += nbytes
        return message.to(self.device)

    def flush(self) -> None:
        for message in self._leaving:
            self.world.wait(message.end_s)
        self._leaving.clear()


@dataclass
class MessageChannels:
    """Channels between all ranks of a world. Ranks in `still` send and receive in no time."""

    world: World
    begin: Begin
    still: set[int]
    _known: dict[tuple[int, int], OneWay] = field(default_factory=dict, init=False)

    def channel(self, own: int, peer: int, device: torch.device) -> VirtualChannel:
        return VirtualChannel(self.world, self._wire(own, peer), self._wire(peer, own), device)

    def _wire(self, sender: int, receiver: int) -> OneWay:
        def begin(nbytes: int) -> Travelling:
            now_s = self.world.now_s
            still = {sender, receiver} <= self.still
            return There(now_s) if still else self.begin(now_s, sender, receiver, nbytes)

        return self._known.setdefault((sender, receiver), OneWay(self.world, begin))


@dataclass
class VirtualPipelineGroup:
    """The stages of a rank's pipeline: a `harness.engine.pipeline.build.PipelineGroup`."""

    wires: MessageChannels
    rank: int
    stage: int
    stages: int
    device: torch.device

    def channel(self, stage: int, name: str) -> VirtualChannel:
        return self.wires.channel(self.rank, self.rank - self.stage + stage, self.device)
