"""Replay in virtual time: gradients of true sizes and no meaning, computed by nobody."""

from typing import Any

import torch
from torch import Tensor

from harness.gradients import bucket_names
from harness.simulate.replica import lay
from harness.simulate.side import Computed, Laid

NAN = float("nan")


class Sizes:
    """The same seeded noise at every worker, in the buckets DDP would make."""

    same = True

    def __init__(
        self,
        parameters: dict[str, Tensor],
        shares: dict[str, float],
        workers: int,
        samples: int,
        bucket_mb: float | None,
        seed: int,
    ) -> None:
        """`parameters` are in registration order; only their shapes count."""
        self.samples = samples
        layout = bucket_names({name: p.numel() for name, p in parameters.items()}, bucket_mb)
        shapes = {name: torch.empty(p.shape) for name, p in parameters.items()}
        self._buckets = [
            [bucket._replace(parameters=()) for bucket in lay(layout, shapes, shares)]
            for _ in range(workers)
        ]
        noise = torch.Generator().manual_seed(seed)
        self._patterns = [
            torch.randn(len(bucket.buffer), generator=noise) for bucket in self._buckets[0]
        ]

    def compute(self, rank: int) -> Computed:
        for bucket, pattern in zip(self._buckets[rank], self._patterns, strict=True):
            bucket.buffer.copy_(pattern)
        return Computed(NAN, 0.0, 0.0)

    def buckets(self, rank: int) -> list[Laid]:
        return self._buckets[rank]

    def update(self, step: int) -> float:
        return 0.0

    def evaluate(self) -> dict[str, float]:
        return {}

    def shared(self) -> dict[str, Any]:
        return {}

    def own(self, rank: int) -> dict[str, Any]:
        return {}
