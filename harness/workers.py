"""The other workers over torch.distributed: blocking collectives, every byte and second counted.

Sizes are per rank and direction: a ring all-reduce of b bytes sends 2(P-1)/P b; an all-gather sends
what the next rank does not own and receives what is not its own.
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

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Mean over workers, in the tensor's own memory; multiplied by 1/P first, as DDP does."""
        tensor.mul_(1 / self.size)
        with _Timed(self):
            dist.all_reduce(tensor, group=self.group)
        volume = 2 * (self.size - 1) * tensor.nbytes // self.size
        self._count(volume, volume)
        return tensor

    def agree(self, value: float, how: str) -> float:
        """One value for all: `how` is `min` or `mean` of theirs."""
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        op = {"min": dist.ReduceOp.MIN, "mean": dist.ReduceOp.SUM}[how]
        with _Timed(self):
            dist.all_reduce(shared, op=op, group=self.group)
        volume = 2 * (self.size - 1) * shared.nbytes // self.size
        self._count(volume, volume)
        return shared.item() / (self.size if how == "mean" else 1)

    def all_gather(self, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
        """Every worker's tensors (1-D, equal length here; lengths may differ between workers).

        The tensors of one worker travel as one piece. Costs one small all-reduce for the lengths.
        """
        lengths = self._lengths(tensors[0].numel())
        item_bytes = sum(tensor.element_size() for tensor in tensors)
        mine = torch.cat([tensor.view(torch.uint8) for tensor in tensors])
        with _Timed(self):
            exchange = self._padded if self.device.type == "cuda" else self._ring
            pieces = exchange(mine, [length * item_bytes for length in lengths])
        sizes = [piece.numel() for piece in pieces]
        self._count(sum(sizes) - sizes[(self.rank + 1) % self.size], sum(sizes) - sizes[self.rank])
        pairs = zip(pieces, lengths, strict=True)
        return [_unpack(piece, length, tensors) for piece, length in pairs]

    def _lengths(self, own: int) -> list[int]:
        lengths = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        lengths[self.rank] = own
        with _Timed(self):
            dist.all_reduce(lengths, group=self.group)
        volume = 2 * (self.size - 1) * lengths.nbytes // self.size
        self._count(volume, volume)
        return lengths.tolist()

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


def _unpack(piece: Tensor, length: int, like: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    parts, offset = [], 0
    for tensor in like:
        stop = offset + length * tensor.element_size()
        part = piece[offset:stop]
        aligned = offset % tensor.element_size() == 0
        parts.append((part if aligned else part.clone()).view(tensor.dtype))
        offset = stop
    return tuple(parts)
