"""Stand-ins for collectives, by which any compressor serves a parameter server.

The compressor's messages must not depend on those of other workers. At a trainer, `Captured`
records its messages, which are the push. At the server, the same compressor reduces an empty
gradient, and `Reading` returns the messages of all pushes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.parameter_server.messages import ProtocolError

Call = tuple[Tensor, ...]  # flat tensors that a compressor hands to one collective
TYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip
POSITIONS = torch.int32, torch.int64
COLUMNS = 4  # of a layout row: bucket, call in the bucket, type, elements


class Contribution(NamedTuple):
    """A compressed gradient: for each bucket the tensors of each collective call."""

    step: int
    density: float
    buckets: list[list[Call]]

    def tensors(self) -> list[Tensor]:
        return [tensor for calls in self.buckets for call in calls for tensor in call]

    def layout(self) -> Tensor:
        """Return types and sizes of `tensors` as a flat int64 vector, COLUMNS numbers each."""
        rows = [
            (bucket, number, TYPES.index(tensor.dtype), tensor.numel())
            for bucket, calls in enumerate(self.buckets)
            for number, call in enumerate(calls)
            for tensor in call
        ]
        return torch.tensor(rows, dtype=torch.int64).view(-1)

    def entries(self, sizes: Sequence[int]) -> int:
        """Count the parameters that the gradient has values for; `sizes` are those of buckets."""
        pairs = zip(self.buckets, sizes, strict=True)
        return sum(_entries(call, size) for calls, size in pairs for call in calls)


def _entries(call: Call, size: int) -> int:
    """Count positions if there are any, else values; codes count as `size`, the whole bucket."""
    for tensor in call:
        if tensor.dtype in POSITIONS:
            return tensor.numel()
    return call[0].numel() if all(tensor.is_floating_point() for tensor in call) else size


def is_sparse(calls: list[Call]) -> bool:
    """Return True if `calls` are float32 values with positions, readable without a compressor."""
    if len(calls) != 1 or len(calls[0]) != 2:
        return False
    values, index = calls[0]
    return values.dtype == torch.float32 and index.dtype in POSITIONS


def read(layout: Tensor, buckets: int, most_bytes: int) -> list[list[list[Tensor]]]:
    """Return empty tensors for a push with this layout, by bucket and call.

    Raise ProtocolError if the layout does not fit `buckets` buckets and `most_bytes`.
    """
    room: list[list[list[Tensor]]] = [[] for _ in range(buckets)]
    left = most_bytes
    for bucket, number, kind, count in layout.view(-1, COLUMNS).tolist():
        good = 0 <= bucket < buckets and 0 <= kind < len(TYPES) and 0 <= count <= left
        if not good or number not in (len(room[bucket]) - 1, len(room[bucket])):
            raise ProtocolError(f"a push of a tensor {bucket, number, kind, count} fits no model")
        if number == len(room[bucket]):
            room[bucket].append([])
        room[bucket][number].append(torch.empty(count, dtype=TYPES[kind]))
        left -= count * TYPES[kind].itemsize
        if left < 0:
            raise ProtocolError(f"a push must have at most {most_bytes} bytes")
    return room


def alone(value: float, how: str) -> float:
    """Return `value`: the agreement of a trainer that has no other trainers to ask."""
    return value


@dataclass
class Captured:
    """A compressor's collectives at a trainer; they record its messages."""

    rank: int
    world_size: int  # pushes of a round
    settle: Callable[[float, str], float]  # agrees with the other trainers on a value
    calls: list[Call] = field(default_factory=list, init=False)

    def take(self) -> list[Call]:
        """Return and clear the calls recorded since the last `take`."""
        calls, self.calls = self.calls, []
        return calls

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        self.calls.append((tensor.flatten().clone(),))
        return tensor

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[Call]:
        self.calls.append(tuple(tensor.clone() for tensor in tensors))
        return [tensors]

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[Call]:
        raise TypeError("a server is sent one message: a compressor cannot use all_to_all")

    def agree(self, value: float, how: str) -> float:
        return self.settle(value, how)

    def all_reduce_min(self, values: list[float]) -> list[float]:
        return values


@dataclass
class Reading:
    """A compressor's collectives at the server; their inputs are the calls of `pushes`."""

    pushes: Sequence[list[Call]]
    rank: int = 0
    world_size: int = field(init=False)
    _next: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.world_size = len(self.pushes)

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        first, *others = (part for (part,) in self._calls((tensor.flatten(),), same=True))
        total = first.clone()
        for other in others:
            total.add_(other)
        if op == "mean" and self.world_size > 1:
            total.mul_(1 / self.world_size)
        return total.view_as(tensor)

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[Call]:
        return self._calls(tensors, same=False)

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[Call]:
        raise TypeError("a server is sent one message: a compressor cannot use all_to_all")

    def _calls(self, like: Call, same: bool) -> list[Call]:
        """Return the next call of every push.

        Raise ProtocolError if a call is missing or has other types than `like`; `same` adds sizes.
        """
        number, self._next = self._next, self._next + 1
        calls = [push[number] for push in self.pushes if number < len(push)]
        for call in calls:
            alike = [part.dtype for part in call] == [part.dtype for part in like]
            if not alike or (same and call[0].numel() != like[0].numel()):
                raise ProtocolError("a push has other tensors than its compressor sends")
        if len(calls) < self.world_size:
            raise ProtocolError("a push has fewer tensors than its compressor sends")
        return calls
