"""Replay in virtual time: gradients of true sizes and no meaning, computed by nobody."""

from typing import Any

import torch
from torch import Tensor

from harness.simulate.replica import lay
from harness.simulate.side import Computed, Laid
from harness.training.gradients import bucket_names

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
        noise = torch.Generator().manual_seed(seed)
        sizes = [sum(shapes[name].numel() for name in names) for names in layout]
        patterns = [torch.randn(size, generator=noise) for size in sizes]
        self._buckets = [
            [
                bucket._replace(parameters=(), pattern=pattern)
                for bucket, pattern in zip(lay(layout, shapes, shares), patterns, strict=True)
            ]
            for _ in range(workers)
        ]

    def compute(self, rank: int) -> Computed:
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
