"""Collectives as an algorithm sees them: tensors packed, bytes counted, whatever carries them.

Sizes are per rank and direction: a ring all-reduce of b bytes sends 2(P-1)/P b; an all-gather sends
what the next rank does not own and receives what is not its own; an all-to-all sends and receives
what has another rank at its other end.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from harness.engine.exchange.processor_waits import Uncounted


class Collectives(ABC):
    """One rank's view of the others. Used by one thread at a time.

    `sent_bytes` and `received_bytes` only grow; callers take differences.
    """

    rank: int
    world_size: int
    device: torch.device
    sent_bytes: int = 0
    received_bytes: int = 0
    processor_waits: Uncounted = Uncounted()  # of the threads that communicate

    @abstractmethod
    def _all_reduce(self, tensor: Tensor, op: str) -> None:
        """Replace `tensor` by the `sum` or `min` of everybody's."""

    @abstractmethod
    def _all_gather_v(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Everybody's piece, uint8 of `sizes` bytes, by rank; they are only read."""

    @abstractmethod
    def _all_to_all(self, mine: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
        """Send `outgoing[p]` elements of `mine` to every p, in order; what `incoming` says came."""

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        """Mean (multiplied by 1/P first, as DDP does) or sum, in the tensor's own memory.

        Added up in the tensor's type, in an order of the ring's: P - 1 roundings.
        """
        if op == "mean":
            tensor.mul_(1 / self.world_size)
        self._all_reduce(tensor, "sum")
        self._count_ring(tensor.nbytes)
        return tensor

    def agree(self, value: float, how: str) -> float:
        """One value for all: `how` is `min` or `mean` of theirs."""
        if how == "min":
            return self.all_reduce_min([value])[0]
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        return self.all_reduce(shared, op="sum").item() / self.world_size

    def all_reduce_min(self, values: list[float]) -> list[float]:
        """Element by element the smallest of all workers' `values`, of which each has as many."""
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        self._all_reduce(shared, "min")
        self._count_ring(shared.nbytes)
        return shared.tolist()

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        """Every worker's tensors (1-D, any types), by rank; any length may differ anywhere.

        The tensors of one worker travel as one piece. Costs one small all-reduce for the lengths,
        unless `equal` promises that all workers bring the lengths that this one brings.
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
        """Exchange tensors with every worker; return, by rank, those sent to this one.

        Each argument has one tensor (1-D, one type) for every worker. Costs one small all-to-all
        for the lengths, unless `equal` promises that all workers send the lengths this one sends.
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

    def _gather(
        self, mine: Tensor, own: list[int], equal: bool, like: tuple[Tensor, ...]
    ) -> tuple[list[list[int]], list[Tensor]]:
        """Everybody's lengths and piece; `mine` is this one's, of tensors of `own` lengths."""
        lengths = [own] * self.world_size if equal else self._lengths(own)
        return lengths, self._all_gather_v(mine, [_nbytes(piece, like) for piece in lengths])

    def _lengths(self, own: list[int]) -> list[list[int]]:
        lengths = torch.zeros(self.world_size, len(own), dtype=torch.int64, device=self.device)
        lengths[self.rank] = torch.tensor(own)
        return self.all_reduce(lengths, op="sum").tolist()

    def _exchanged_lengths(self, leaving: list[list[int]]) -> list[list[int]]:
        ours = torch.tensor(leaving, dtype=torch.int64, device=self.device)
        each = [ours.shape[1]] * self.world_size
        theirs = self._all_to_all(ours.view(-1), each, each)
        volume = ours.nbytes // self.world_size * (self.world_size - 1)
        self._count(volume, volume)
        return theirs.view(ours.shape).tolist()

    def _count_ring(self, nbytes: int) -> None:
        volume = 2 * (self.world_size - 1) * nbytes // self.world_size
        self._count(volume, volume)

    def _count(self, sent: int, received: int) -> None:
        self.sent_bytes += sent
        self.received_bytes += received


def _nbytes(lengths: list[int], like: tuple[Tensor, ...]) -> int:
    """Bytes of tensors of these `lengths` and the types of `like`."""
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
