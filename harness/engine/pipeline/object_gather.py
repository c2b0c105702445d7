"""Exchange of objects between all ranks of a run between steps, with bytes counted."""

import io
from typing import Any

import torch

from harness.engine.exchange.collectives import Collectives


class ObjectGather:
    """Gather of Python objects over all ranks, between CPUs, whose bytes are counted."""

    def __init__(self, workers: Collectives) -> None:
        self.workers = workers

    def gather(self, mine: Any) -> list[Any]:
        """Gather every rank's object, by rank: tensors, containers of them and plain values."""
        buffer = io.BytesIO()
        torch.save(mine, buffer)
        own = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)
        pieces = self.workers.all_gather(own)
        return [
            torch.load(io.BytesIO(piece.numpy().tobytes()), weights_only=True, map_location="cpu")
            for (piece,) in pieces
        ]
