"""What a trainer's thread and the server say to each other: a kind and numbers, 64 bytes each.

A thread speaks first and then waits for its answer, which may be preceded by any number of Wait
and Ask. What follows a message, as tensors, is said with it.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

NUMBERS = 8  # float64, of a message: its kind first


class Hello(NamedTuple):
    """A thread's first: who it is, and the parameters of the model that it has."""

    rank: int
    thread: int
    entries: int


class Welcome(NamedTuple):
    """Answer to Hello: the first step that this rank has not pushed."""

    step: int


class Pull(NamedTuple):
    """Asks for the weights."""


class Weights(NamedTuple):
    """Answer to Pull; the weights follow, float32 [n]."""

    version: int


class Push(NamedTuple):
    """A gradient of `step`, of weights of `version`, compressed at `density`.

    A layout of so many tensors follows, and these (harness.engine.parameter_server.captured).
    """

    step: int
    version: int
    tensors: int
    density: float
    entries: int  # of the model's, that it says something of
    residual_norm: float
    drains: int


class Ack(NamedTuple):
    """Answer to Push, once the thread may go on, and to Finish, once the run is over."""

    version: int  # that the push has made
    accepted: int  # 0: it was refused
    ends: int  # 1: the run ends here, do no further step
    waited: float  # for other trainers, on the clock


class Settle(NamedTuple):
    """Asks what all trainers make of a value of each: the smallest, or the mean."""

    value: float
    is_min: int  # 1: the smallest; 0: the mean


class Settled(NamedTuple):
    """Answer to Settle, once all have asked."""

    value: float
    waited: float  # for other trainers, on the clock


class Finish(NamedTuple):
    """This thread has no more steps to do."""


class Wait(NamedTuple):
    """The answer comes later: the server is alive."""


class Ask(NamedTuple):
    """Asks for the buffers of the thread's model, or that its rank writes its part of a checkpoint.

    Only of a thread that waits.
    """

    what: int  # BUFFERS | SAVE
    step: int


class Answer(NamedTuple):
    """Answer to Ask; uint8 [nbytes] follow."""

    nbytes: int


class Refusal(NamedTuple):
    """Answer to Hello or Push that cannot be read; the session is over."""

    entries: int  # that the server's model has


Message = (
    Hello | Welcome | Pull | Weights | Push | Ack | Settle | Settled | Finish | Wait | Ask | Answer
    | Refusal
)  # fmt: skip
KINDS: tuple[Any, ...] = Message.__args__
BUFFERS, SAVE = 0, 1


class ProtocolError(RuntimeError):
    """The other end said what it may not say here."""


def encoded(message: Message) -> Tensor:
    """Float64 [NUMBERS]; whole numbers below 2^53 are exact."""
    numbers = [KINDS.index(type(message)), *message]
    return torch.tensor(numbers + [0.0] * (NUMBERS - len(numbers)), dtype=torch.float64)


def decoded(numbers: Tensor) -> Message:
    """ProtocolError for what is no message."""
    kind, *fields = numbers.tolist()
    if kind not in range(len(KINDS)):
        raise ProtocolError(f"a message must be of a kind in [0, {len(KINDS)}), got {kind}")
    names = KINDS[int(kind)].__annotations__
    try:
        typed = [of(field) for of, field in zip(names.values(), fields, strict=False)]
    except (ValueError, OverflowError) as error:
        raise ProtocolError(f"{KINDS[int(kind)].__name__} with {fields}: {error}") from error
    return KINDS[int(kind)](*typed)
