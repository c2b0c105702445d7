"""Collectives over any backend: they pack tensors into one message and count bytes.

Byte counts are per rank and direction. A ring all-reduce of b bytes sends 2(P-1)/P b. An all-gather
sends every piece except the next rank's and receives every piece except its own. An all-to-all
counts every piece except the one that a rank sends to itself.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.engine.exchange.backends import ProcessGroup, backend_of
from harness.engine.exchange.processor_waits import ProcessorWaits


class Levels(NamedTuple):
    """One rank's collectives with the ranks of its node, and with its peers on the other nodes.

    The peers are the ranks that have the same number in their nodes.
    """

    inside: "Collectives"
    between: "Collectives"


class Collectives(ABC):
    """One rank's interface to all workers. Only one thread at a time may use it.

    `sent_bytes` and `received_bytes` only grow. Callers take differences.
    """

    rank: int
    world_size: int
    device: torch.device
    sent_bytes: int = 0
    received_bytes: int = 0
    processor_waits: ProcessorWaits | None = None  # waits of the communicating threads, if counted
    # With two levels. Bytes inside the node are then counted apart.
    levels: Levels | None = None
    shards: int = 1  # parts of a bucket; each worker of a node exchanges one
    inside_bytes: int = 0  # sent

    @abstractmethod
    def _all_reduce(self, tensor: Tensor, op: str) -> None:
        """Replace `tensor` by the elementwise `op` over workers, "sum" or "min"."""

    @abstractmethod
    def _all_gather_v(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Return every worker's `mine`, uint8 of `sizes` bytes, ordered by rank and read only."""

    @abstractmethod
    def _all_to_all(self, mine: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
        """Send `outgoing[p]` elements of `mine` to each worker p, in order of rank.

        Return the received elements as one tensor, with `incoming[p]` elements from worker p.
        """

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        """Return the mean or sum of `tensor` over workers, in the memory of `tensor`.

        A mean multiplies by 1/P before the sum, as DDP does. The backend adds in the tensor's type
        and in ring order, which rounds P - 1 times.
        """
        if op == "mean":
            tensor.mul_(1 / self.world_size)
        self._all_reduce(tensor, "sum")
        self._count_ring(tensor.nbytes)
        return tensor

    def agree(self, value: float, how: str) -> float:
        """Return the minimum or mean of all workers' values. `how` is "min" or "mean"."""
        if how == "min":
            return self.all_reduce_min([value])[0]
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        return self.all_reduce(shared, op="sum").item() / self.world_size

    def all_reduce_min(self, values: list[float]) -> list[float]:
        """Return the elementwise minimum over workers, which must pass equally many values."""
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        self._all_reduce(shared, "min")
        self._count_ring(shared.nbytes)
        return shared.tolist()

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        """Return every worker's tensors, ordered by rank. They are 1-D, of any types and lengths.

        The tensors of one worker travel as one message. A small all-reduce first exchanges the
        lengths, unless `equal` promises that all workers pass the same lengths.
        """
        own = [tensor.numel() for tensor in tensors]
        mine = torch.cat([tensor.view(torch.uint8) for tensor in tensors])
        lengths, pieces = self._gather(mine, own, equal, tensors)
        sizes = [piece.numel() for piece in pieces]
        self._count(
            sum(sizes) - sizes[(self.rank + 1) % self.world_size], sum(sizes) - sizes[self.rank]
        )
        return [_unpack(*pair, tensors) for pair in zip(pieces, lengths, strict=True)]

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        """Exchange tensors with every worker. Return the received tensors, ordered by sender.

        Each argument lists one 1-D tensor for every worker, all of one type. A small all-to-all
        first exchanges the lengths, unless `equal` promises that all workers send the same lengths.
        """
        like = tuple(column[self.rank] for column in pieces)
        leaving = [[column[peer].numel() for column in pieces] for peer in range(self.world_size)]
        arriving = (
            [leaving[self.rank]] * self.world_size if equal else self._exchanged_lengths(leaving)
        )
        mine = torch.cat(
            [column[peer].view(torch.uint8) for peer in range(self.world_size) for column in pieces]
        )
        outgoing = [_nbytes(piece, like) for piece in leaving]
        incoming = [_nbytes(piece, like) for piece in arriving]
        theirs = self._all_to_all(mine, outgoing, incoming)
        self._count(sum(outgoing) - outgoing[self.rank], sum(incoming) - incoming[self.rank])
        return [_unpack(*pair, like) for pair in zip(theirs.split(incoming), arriving, strict=True)]

    def reduce_scatter(self, tensor: Tensor) -> Tensor:
        """Return this rank's part of the mean of `tensor`, [n], over workers, in its memory.

        The parts are those of `tensor_split`. The content of the other parts is undefined. Every
        rank receives its part from all ranks and adds them in order of rank, because the
        reduce-scatter of gloo sends as much as an all-reduce.
        """
        parts = tensor.mul_(1 / self.world_size).tensor_split(self.world_size)
        (first,), *others = self.all_to_all(list(parts), equal=True)
        mine = parts[self.rank].copy_(first)
        for (other,) in others:
            mine.add_(other)
        return mine

    def all_gather_parts(self, tensor: Tensor) -> Tensor:
        """Fill `tensor`, [n], with every rank's own part, as `reduce_scatter` left it there."""
        parts = tensor.tensor_split(self.world_size)
        sizes = [part.nbytes for part in parts]
        pieces = self._all_gather_v(parts[self.rank].clone().view(torch.uint8), sizes)
        after = sizes[(self.rank + 1) % self.world_size]
        self._count(sum(sizes) - after, sum(sizes) - sizes[self.rank])
        for part, piece in zip(parts, pieces, strict=True):
            part.copy_(piece.view(tensor.dtype))
        return tensor

    def _gather(
        self, mine: Tensor, own: list[int], equal: bool, like: tuple[Tensor, ...]
    ) -> tuple[list[list[int]], list[Tensor]]:
        """Return every worker's tensor lengths and bytes. `mine` has tensors of `own` lengths."""
        lengths = [own] * self.world_size
        if not equal:
            rows = torch.zeros(self.world_size, len(own), dtype=torch.int64, device=self.device)
            rows[self.rank] = torch.tensor(own)
            lengths = self.all_reduce(rows, op="sum").tolist()
        return lengths, self._all_gather_v(mine, [_nbytes(piece, like) for piece in lengths])

    def _exchanged_lengths(self, leaving: list[list[int]]) -> list[list[int]]:
        ours = torch.tensor(leaving, dtype=torch.int64, device=self.device)
        counts = [ours.shape[1]] * self.world_size
        theirs = self._all_to_all(ours.view(-1), counts, counts)
        volume = ours.nbytes // self.world_size * (self.world_size - 1)
        self._count(volume, volume)
        return theirs.view(ours.shape).tolist()

    def _count_ring(self, nbytes: int) -> None:
        volume = 2 * (self.world_size - 1) * nbytes // self.world_size
        self._count(volume, volume)

    def _count(self, sent: int, received: int) -> None:
        self.sent_bytes += sent
        self.received_bytes += received


@dataclass
class Workers(Collectives):
    """One rank's collectives over a real process group. Every collective is timed.

    Tensors are on `device`. If the backend cannot send from there, they are copied to host memory,
    and the copy does not count as time on the wire.

    `intervals` lists begin and end of each collective by time.monotonic(). Its reader clears the
    list. `counted` lists begin, end, sent and received bytes. Its reader replaces the list.
    """

    group: ProcessGroup
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    intervals: list[tuple[float, float]] = field(default_factory=list, init=False)
    counted: list[tuple[float, float, int, int]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.rank, self.world_size = self.group.rank(), self.group.size()
        self.backend = backend_of(self.group, self.device)
        is_direct = self.backend.device_type == self.device.type
        self._sends_from = self.device if is_direct else torch.device(self.backend.device_type)

    def _all_reduce(self, tensor: Tensor, op: str) -> None:
        sent = tensor.to(self._sends_from)
        self._timed(self.backend.all_reduce, sent, op)
        if sent is not tensor:
            tensor.copy_(sent)

    def _all_gather_v(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        pieces = self._timed(self.backend.all_gather, mine.to(self._sends_from), sizes)
        return [piece.to(self.device) for piece in pieces]

    def _all_to_all(self, mine: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
        sent = mine.to(self._sends_from)
        theirs: Tensor = self._timed(self.backend.all_to_all, sent, outgoing, incoming)
        return theirs.to(self.device)

    def _timed(self, collective: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of `collective`; record its interval, with the GPU synchronised."""
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        if stream is not None:
            stream.synchronize()
        begin = time.monotonic()
        value = collective(self.group, *arguments)
        if stream is not None:
            stream.synchronize()
        self.intervals.append((begin, time.monotonic()))
        return value

    def _count(self, sent: int, received: int) -> None:
        super()._count(sent, received)  # once after each collective
        self.counted.append((*self.intervals[-1], sent, received))


def _nbytes(lengths: list[int], like: tuple[Tensor, ...]) -> int:
    """Return the bytes of tensors with these `lengths` and the types of `like`."""
    return sum(length * tensor.element_size() for length, tensor in zip(lengths, like, strict=True))


def _unpack(piece: Tensor, lengths: list[int], like: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    parts, offset = [], 0
    for tensor, length in zip(like, lengths, strict=True):
        stop = offset + length * tensor.element_size()
        part = piece[offset:stop]
        aligned = part.storage_offset() % tensor.element_size() == 0
        parts.append((part if aligned else part.clone()).view(tensor.dtype))
        offset = stop
    return tuple(parts)
