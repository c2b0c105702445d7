"""Messages between a trainer's thread and the server: type and numbers, 64 bytes each.

The thread sends a message and waits for its answer. Before the answer the server may send any
number of Ask. Tensors that belong to a message follow it.
"""

from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

NUMBERS = 8  # float64 numbers of a message, its kind included


class Hello(NamedTuple):
    """First message of a thread: its identity, and the number of parameters of its model."""

    rank: int
    thread: int
    entries: int


class Welcome(NamedTuple):
    """Answer to Hello: the first step that this rank has not pushed yet."""

    step: int


class Pull(NamedTuple):
    """Request for the weights."""


class Weights(NamedTuple):
    """Answer to Pull; the weights follow, float32 [n]."""

    version: int


class Push(NamedTuple):
    """A gradient of step `step`, computed on weights `version` and compressed at `density`.

    A layout with `tensors` rows and these tensors follow (parameter_server.captured).
    """

    step: int
    version: int
    tensors: int
    density: float
    entries: int  # number of parameters that it has values for
    residual_norm: float
    drains: int


class Ack(NamedTuple):
    """Answer to Push when the thread may continue, and to Finish when the run is over."""

    ends: int  # 1: the run ends here, do no further step
    waited: float  # seconds that the answer was held back, on the clock


class Settle(NamedTuple):
    """Request for the minimum or mean of all trainers' values."""

    value: float
    is_min: int  # 1: the smallest; 0: the mean


class Settled(NamedTuple):
    """Answer to Settle, sent when all trainers have asked."""

    value: float
    waited: float  # seconds that the answer was held back, on the clock


class Finish(NamedTuple):
    """Report that this thread has no more steps to do."""


class Ask(NamedTuple):
    """Request to a waiting thread for its model's buffers or its part of a checkpoint."""

    what: int  # BUFFERS | SAVE
    step: int


class Answer(NamedTuple):
    """Answer to Ask, followed by uint8 [nbytes]."""

    nbytes: int


Message = Hello | Welcome | Pull | Weights | Push | Ack | Settle | Settled | Finish | Ask | Answer
KINDS: tuple[Any, ...] = Message.__args__
BUFFERS, SAVE = 0, 1
M = TypeVar("M", bound=Message)


class ProtocolError(RuntimeError):
    """The other end sent a message or tensor that is not allowed here."""


def encoded(message: Message) -> Tensor:
    """Encode `message` as float64 [NUMBERS]; integers below 2^53 are exact."""
    numbers = [KINDS.index(type(message)), *message]
    return torch.tensor(numbers + [0.0] * (NUMBERS - len(numbers)), dtype=torch.float64)


def decoded(numbers: Tensor) -> Message:
    """Decode float64 [NUMBERS] to a message; raise ProtocolError if it is none."""
    kind, *fields = numbers.tolist()
    if kind not in range(len(KINDS)):
        raise ProtocolError(f"a message must be of a kind in [0, {len(KINDS)}), got {kind}")
    names = KINDS[int(kind)].__annotations__
    try:
        typed = [type_(value) for type_, value in zip(names.values(), fields, strict=False)]
    except (ValueError, OverflowError) as error:
        raise ProtocolError(f"{KINDS[int(kind)].__name__} with {fields}: {error}") from error
    return KINDS[int(kind)](*typed)


def expect(message: Message, kind: type[M]) -> M:
    """Return `message`; raise ProtocolError if it is not of type `kind`."""
    if not isinstance(message, kind):
        raise ProtocolError(f"expected {kind.__name__}, got {message}")
    return message
