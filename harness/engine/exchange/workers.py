"""The other workers over torch.distributed: blocking collectives, every one timed."""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from harness.engine.exchange.collectives import Collectives

CHUNK_BYTES = 512 * 1024  # of the ring all-gather: small enough to pipeline, large enough for gloo
OPERATIONS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN}


@dataclass
class Workers(Collectives):
    """One rank's view of a process group.

    Tensors are on `device`. Where that is a GPU and the group is gloo's, they travel by way of the
    host's memory, which is not time on the wire.

    `intervals` are when collectives were on the wire, monotonic; whoever reads them clears them.
    `counted` has begin, end, sent and received bytes of every collective; who records them takes
    them out.
    """

    group: dist.ProcessGroup
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    intervals: list[tuple[float, float]] = field(default_factory=list, init=False)
    counted: list[tuple[float, float, int, int]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.rank = self.group.rank()
        self.world_size = self.group.size()
        by_nccl = self.device.type == "cuda" and dist.get_backend(self.group) == "nccl"
        self._from = self.device if by_nccl else torch.device("cpu")  # that the group sends from

    def _all_reduce(self, tensor: Tensor, op: str) -> None:
        sent = tensor.to(self._from)
        with _Timed(self):
            dist.all_reduce(sent, op=OPERATIONS[op], group=self.group)
        if sent is not tensor:
            tensor.copy_(sent)

    def _all_gather_v(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        sent = mine.to(self._from)
        with _Timed(self):
            pieces = (self._padded if sent.is_cuda else self._ring)(sent, sizes)
        return [piece.to(self.device) for piece in pieces]

    def _all_to_all(self, mine: Tensor, outgoing: list[int], incoming: list[int]) -> Tensor:
        sent = mine.to(self._from)
        theirs = sent.new_empty(sum(incoming))
        with _Timed(self):
            dist.all_to_all_single(theirs, sent, incoming, outgoing, group=self.group)
        return theirs.to(self.device)

    def _count(self, sent: int, received: int) -> None:
        super()._count(sent, received)  # after each collective
        self.counted.append((*self.intervals[-1], sent, received))

    def _padded(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Every worker's piece by one all-gather of the longest size: NCCL has no tagged sends."""
        longest = max(sizes)
        padded = torch.nn.functional.pad(mine, (0, longest - mine.numel()))
        gathered = padded.new_empty(self.world_size, longest)
        dist.all_gather_into_tensor(gathered.view(-1), padded, group=self.group)
        return [row[:size].clone() for row, size in zip(gathered, sizes, strict=True)]

    def _ring(self, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Every worker's piece from the ring: each chunk is passed on as soon as it arrives.

        Reaches the bound of the busiest link, total minus smallest piece, also when sizes differ.
        """
        pieces = [torch.empty(size, dtype=torch.uint8) for size in sizes]
        pieces[self.rank] = mine
        if self.world_size == 1:
            return pieces
        before, after = (self.rank - 1) % self.world_size, (self.rank + 1) % self.world_size
        chunks = [piece.split(CHUNK_BYTES) if piece.numel() else () for piece in pieces]
        owners = [
            (self.rank - distance) % self.world_size for distance in range(1, self.world_size)
        ]
        incoming = [
            (owner, number, self._receive(chunk, before, 1 + owner + self.world_size * number))
            for owner in owners
            for number, chunk in enumerate(chunks[owner])
        ]
        outgoing = [
            self._send(chunk, after, 1 + self.rank + self.world_size * number)
            for number, chunk in enumerate(chunks[self.rank])
        ]
        for owner, number, arrival in incoming:
            arrival.wait()
            if owner != after:
                tag = 1 + owner + self.world_size * number
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


class _Timed:
    """Notes when collectives are on the wire; on a GPU that is all that is in the stream then."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def __enter__(self) -> None:
        self._wait_for_gpu()
        self._begin = time.monotonic()

    def __exit__(self, *failure: object) -> None:
        self._wait_for_gpu()
        self._workers.intervals.append((self._begin, time.monotonic()))

    def _wait_for_gpu(self) -> None:
        if self._workers.device.type == "cuda":
            torch.cuda.current_stream(self._workers.device).synchronize()
