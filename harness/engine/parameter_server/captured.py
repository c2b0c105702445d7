"""What a compressor hands to its collectives: kept at a trainer, pushed, and read at the server.

So any compressor whose messages do not depend on other workers' can push, as it is: at a trainer it
meets nobody, and what it would have sent is the push. The server is one who has nothing to add: the
same compressor reduces an empty gradient there, and finds the pushes at its collectives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.parameter_server.messages import ProtocolError

Call = tuple[Tensor, ...]  # of one collective; flat
TYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip
POSITIONS = torch.int32, torch.int64
COLUMNS = 4  # of a layout: bucket, call in it, type, elements of a tensor


class Contribution(NamedTuple):
    """A gradient: for each bucket what was handed to each collective."""

    step: int
    density: float
    buckets: list[list[Call]]

    def tensors(self) -> list[Tensor]:
        return [tensor for calls in self.buckets for call in calls for tensor in call]

    def layout(self) -> Tensor:
        """Int64 [tensors x COLUMNS], of `tensors`, without which they cannot be read."""
        rows = [
            (bucket, number, TYPES.index(tensor.dtype), tensor.numel())
            for bucket, calls in enumerate(self.buckets)
            for number, call in enumerate(calls)
            for tensor in call
        ]
        return torch.tensor(rows, dtype=torch.int64).view(-1)

    def entries(self, sizes: Sequence[int]) -> int:
        """Number of the model's entries that are contributed; `sizes` are those of buckets."""
        pairs = zip(self.buckets, sizes, strict=True)
        return sum(_entries(call, size) for calls, size in pairs for call in calls)


def _entries(call: Call, size: int) -> int:
    """As many as there are positions, or numbers; where there are codes, all of the bucket's."""
    for tensor in call:
        if tensor.dtype in POSITIONS:
            return tensor.numel()
    return call[0].numel() if all(one.is_floating_point() for one in call) else size


def is_sparse(calls: list[Call]) -> bool:
    """True if `calls` are values with positions, which need not be taken apart."""
    if len(calls) != 1 or len(calls[0]) != 2:
        return False
    values, index = calls[0]
    return values.dtype == torch.float32 and index.dtype in POSITIONS


def read(layout: Tensor, buckets: int, most_bytes: int) -> list[list[list[Tensor]]]:
    """Room for the tensors of a push, by bucket and call. ProtocolError for what cannot be one."""
    found: list[list[list[Tensor]]] = [[] for _ in range(buckets)]
    left = most_bytes
    for bucket, number, kind, count in layout.view(-1, COLUMNS).tolist():
        good = 0 <= bucket < buckets and 0 <= kind < len(TYPES) and 0 <= count <= left
        if not good or number not in (len(found[bucket]) - 1, len(found[bucket])):
            raise ProtocolError(f"a push of a tensor {bucket, number, kind, count} fits no model")
        if number == len(found[bucket]):
            found[bucket].append([])
        found[bucket][number].append(torch.empty(count, dtype=TYPES[kind]))
        left -= count * TYPES[kind].itemsize
        if left < 0:
            raise ProtocolError(f"a push must have at most {most_bytes} bytes")
    return found


def alone(value: float, how: str) -> float:
    """Agree with nobody: the value itself."""
    return value


@dataclass
class Captured:
    """In the place of the others at a trainer: keeps what a compressor hands to its collectives.

    `settle` agrees with the other trainers on a value.
    """

    rank: int
    world_size: int  # of those whose pushes are averaged
    settle: Callable[[float, str], float]
    calls: list[Call] = field(default_factory=list, init=False)

    def take(self) -> list[Call]:
        """Return the calls since the last time, and forget them."""
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
    """In the place of the others at the server: `pushes` are at the collectives, in their order.

    `of` is how many each trainer took it for that there are, of which some may be missing.
    """

    pushes: Sequence[list[Call]]
    of: int
    rank: int = 0
    world_size: int = field(init=False)
    _next: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.world_size = len(self.pushes)

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        first, *others = (one for (one,) in self._at((tensor.flatten(),), same=True))
        total = first.clone()
        for other in others:
            total.add_(other)
        share = 1 / self.world_size if op == "mean" else self.of / self.world_size
        if share != 1:
            total.mul_(share)
        return total.view_as(tensor)

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[Call]:
        return self._at(tensors, same=False)

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[Call]:
        raise TypeError("a server is sent one message: a compressor cannot use all_to_all")

    def _at(self, like: Call, same: bool) -> list[Call]:
        number, self._next = self._next, self._next + 1
        found = [calls[number] for calls in self.pushes if number < len(calls)]
        for call in found:
            alike = [one.dtype for one in call] == [one.dtype for one in like]
            if not alike or (same and call[0].numel() != like[0].numel()):
                raise ProtocolError("a push has other tensors than its compressor sends")
        if len(found) < self.world_size:
            raise ProtocolError("a push has fewer tensors than its compressor sends")
        return found
