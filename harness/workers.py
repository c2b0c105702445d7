"""The other workers over torch.distributed: blocking collectives, every byte and second counted.

Sizes are per rank and direction: a ring all-reduce of b bytes sends 2(P-1)/P b; an all-gather sends
what the next rank does not own and receives what is not its own; an all-to-all sends and receives
what has another rank at its other end.
"""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

CHUNK_BYTES = 512 * 1024  # of the ring all-gather: small enough to pipeline, large enough for gloo


@dataclass
class Workers:
    """One rank's view of a process group. Used by one thread at a time.

    `sent_bytes`, `received_bytes` and `seconds` (real) only grow; callers take differences.
    """

    group: dist.ProcessGroup
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    intervals: list[tuple[float, float]] = field(default_factory=list)  # monotonic, of collectives
    sent_bytes: int = field(default=0, init=False)
    received_bytes: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.rank = self.group.rank()
        self.size = self.group.size()

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        """Mean (multiplied by 1/P first, as DDP does) or sum, in the tensor's own memory.

        Added up in the tensor's type, in an order of the ring's: P - 1 roundings.
        """
        if op == "mean":
            tensor.mul_(1 / self.size)
        with _Timed(self):
            dist.all_reduce(tensor, group=self.group)
        volume = 2 * (self.size - 1) * tensor.nbytes // self.size
        self._count(volume, volume)
        return tensor

    def agree(self, value: float, how: str) -> float:
        """One value for all: `how` is `min` or `mean` of theirs."""
        if how == "min":
            return self.least([value])[0]
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        return self.all_reduce(shared, op="sum").item() / self.size

    def least(self, values: list[float]) -> list[float]:
        """Element by element the smallest of all workers' `values`, of which each has as many."""
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        with _Timed(self):
            dist.all_reduce(shared, op=dist.ReduceOp.MIN, group=self.group)
        volume = 2 * (self.size - 1) * shared.nbytes // self.size
        self._count(volume, volume)
        return shared.tolist()

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        """Every worker's tensors (1-D, any types), by rank; any length may differ anywhere.

        The tensors of one worker travel as one piece. Costs one small all-reduce for the lengths,
        unless `equal` promises that all workers bring the lengths that this one brings.
        """
        own = [tensor.numel() for tensor in tensors]
        lengths = [own] * self.size if equal else self._lengths(own)
        mine = torch.cat([tensor.view(torch.uint8) for tensor in tensors])
        with _Timed(self):
            exchange = self._padded if self.device.type == "cuda" else self._ring
            pieces = exchange(mine, [_nbytes(piece, tensors) for piece in lengths])
        sizes = [piece.numel() for piece in pieces]
        self._count(sum(sizes) - sizes[(self.rank + 1) % self.size], sum(sizes) - sizes[self.rank])
        return [_unpack(*pair, tensors) for pair in zip(pieces, lengths, strict=True)]

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        """What every worker sent to this one, by rank; any length may differ anywhere.

        Each argument has one tensor (1-D, one type) for every worker. Costs one small all-to-all
        for the lengths, unless `equal` promises that all workers send the lengths this one sends.
        """
        like = tuple(column[self.rank] for column in pieces)
        leaving = [[column[peer].numel() for column in pieces] for peer in range(self.size)]
        arriving = [leaving[self.rank]] * self.size if equal else self._swapped(leaving)
        mine = torch.cat(
            [column[peer].view(torch.uint8) for peer in range(self.size) for column in pieces]
        )
        outgoing = [_nbytes(piece, like) for piece in leaving]
        incoming = [_nbytes(piece, like) for piece in arriving]
        theirs = mine.new_empty(sum(incoming))
        with _Timed(self):
            dist.all_to_all_single(theirs, mine, incoming, outgoing, group=self.group)
        self._count(sum(outgoing) - outgoing[self.rank], sum(incoming) - incoming[self.rank])
        return [_unpack(*pair, like) for pair in zip(theirs.split(incoming), arriving, strict=True)]

    def _lengths(self, own: list[int]) -> list[list[int]]:
        lengths = torch.zeros(self.size, len(own), dtype=torch.int64, device=self.device)
        lengths[self.rank] = torch.tensor(own)
        return self.all_reduce(lengths, op="sum").tolist()

    def _swapped(self, leaving: list[list[int]]) -> list[list[int]]:
        ours = torch.tensor(leaving, dtype=torch.int64, device=self.device)
        theirs = torch.empty_like(ours)
        with _Timed(self):
            dist.all_to_all_single(theirs, ours, group=self.group)
        volume = ours.nbytes // self.size * (self.size - 1)
        self._count(volume, volume)
        return theirs.tolist()

    def _padded(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Every worker's piece by one all-gather of the longest size: NCCL has no tagged sends."""
        longest = max(sizes)
        padded = torch.nn.functional.pad(mine, (0, longest - mine.numel()))
        gathered = padded.new_empty(self.size, longest)
        dist.all_gather_into_tensor(gathered.view(-1), padded, group=self.group)
        return [row[:size].clone() for row, size in zip(gathered, sizes, strict=True)]

    def _ring(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Every worker's piece from the ring: each chunk is passed on as soon as it arrives.

        Reaches the bound of the busiest link, total minus smallest piece, also when sizes differ.
        """
        pieces = [torch.empty(size, dtype=torch.uint8) for size in sizes]
        pieces[self.rank] = mine
        if self.size == 1:
            return pieces
        before, after = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        chunks = [piece.split(CHUNK_BYTES) if piece.numel() else () for piece in pieces]
        owners = [(self.rank - distance) % self.size for distance in range(1, self.size)]
        incoming = [
            (owner, number, self._receive(chunk, before, 1 + owner + self.size * number))
            for owner in owners
            for number, chunk in enumerate(chunks[owner])
        ]
        outgoing = [
            self._send(chunk, after, 1 + self.rank + self.size * number)
            for number, chunk in enumerate(chunks[self.rank])
        ]
        for owner, number, arrival in incoming:
            arrival.wait()
            if owner != after:
                tag = 1 + owner + self.size * number
                outgoing.append(self._send(chunks[owner][number], after, tag))
        for departure in outgoing:
            departure.wait()
        return pieces

    def _send(self, chunk: Tensor, peer: int, tag: int) -> dist.Work:
        work = dist.isend(chunk, group=self.group, group_dst=peer, tag=tag)
        assert work is not None  # this rank is a member of its group
        return work

    def _receive(self, chunk: Tensor, peer: int, tag: int) -> dist.Work:
        work = dist.irecv(chunk, group=self.group, group_src=peer, tag=tag)
        assert work is not None
        return work

    def _count(self, sent: int, received: int) -> None:
        self.sent_bytes += sent
        self.received_bytes += received


class _Timed:
    """Adds the time a block of collectives takes; on a GPU it is all that is in the stream then."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def __enter__(self) -> None:
        self._wait_for_gpu()
        self._begin = time.monotonic()

    def __exit__(self, *failure: object) -> None:
        self._wait_for_gpu()
        end = time.monotonic()
        self._workers.seconds += end - self._begin
        self._workers.intervals.append((self._begin, end))

    def _wait_for_gpu(self) -> None:
        if self._workers.device.type == "cuda":
            torch.cuda.current_stream(self._workers.device).synchronize()


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
