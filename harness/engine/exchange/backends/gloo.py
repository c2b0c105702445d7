"""Collectives between CPUs over TCP. Tensors of a GPU are copied to host memory first."""

import torch
from torch import Tensor

from harness.config.backends import BETWEEN_CPUS
from harness.engine.exchange.backends.base import Backend, ProcessGroup


class Gloo(Backend):
    """Gloo's collectives, with our own all-gather for pieces of different sizes."""

    device_type = BETWEEN_CPUS.device_type

    def all_gather(self, group: ProcessGroup, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Return all pieces by rank, over a ring that forwards each chunk as soon as it arrives.

        It takes the least time of the busiest link (total minus smallest piece) for any sizes.
        """
        rank, world_size = group.rank(), group.size()
        pieces = [torch.empty(size, dtype=torch.uint8) for size in sizes]
        pieces[rank] = mine
        if world_size == 1:
            return pieces
        before, after = (rank - 1) % world_size, (rank + 1) % world_size
        chunks = [
            piece.split(BETWEEN_CPUS.chunk_bytes) if piece.numel() else () for piece in pieces
        ]

        def tag(owner: int, number: int) -> int:
            return 1 + owner + world_size * number

        incoming = [
            (owner, number, self.receive(group, chunk, before, tag(owner, number)))
            for owner in ((rank - distance) % world_size for distance in range(1, world_size))
            for number, chunk in enumerate(chunks[owner])
        ]
        outgoing = [
            self.send(group, chunk, after, tag(rank, number))
            for number, chunk in enumerate(chunks[rank])
        ]
        for owner, number, arrival in incoming:
            arrival.wait()
            if owner != after:
                chunk = chunks[owner][number]
                outgoing.append(self.send(group, chunk, after, tag(owner, number)))
        for departure in outgoing:
            departure.wait()
        return pieces
