"""Who trains on what: deterministic batches of one rank, and its share of a test set."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch

from compressors.draw import generator
from harness.data.base import Batch, Plan, Samples

ORDER, CHANGE = 1, 2  # separate streams: which samples, and how they are augmented
TEST_BATCH_SIZE = 256


def _require_rank(rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise ValueError(f"rank must be in [0, {size}), got {rank}")


@dataclass(frozen=True)
class Batches:
    """Endless batches of `rank` among `size`, a function of `seed` alone; from step `first` on.

    Every epoch is shuffled anew and cut into global batches, of which each rank takes its part; so
    the same global batch trains at any number of workers. What is left over is dropped.
    """

    samples: Samples
    batch_size: int
    rank: int
    size: int
    seed: int
    first: int = 0

    def __post_init__(self) -> None:
        _require_rank(self.rank, self.size)
        most = len(self.samples) // self.size
        if not 0 < self.batch_size <= most:
            raise ValueError(
                f"batch_size must be in [1, {most}] for {len(self.samples)} samples on "
                f"{self.size} workers, got {self.batch_size}"
            )

    @property
    def steps_per_epoch(self) -> int:
        return len(self.samples) // (self.batch_size * self.size)

    def __iter__(self) -> Iterator[Batch]:
        return self.samples.stream(self._plan())

    def _plan(self) -> Plan:
        steps = self.steps_per_epoch
        used = steps * self.size * self.batch_size
        begun, done = divmod(self.first, steps)
        for epoch in count(begun):
            source = generator(ORDER, self.seed, epoch)
            order = torch.randperm(len(self.samples), generator=source)
            parts = order[:used].view(steps, self.size, self.batch_size)[:, self.rank]
            for step in range(done if epoch == begun else 0, steps):
                yield parts[step], (CHANGE, self.seed, epoch, step, self.rank)


@dataclass(frozen=True)
class shard:  # noqa: N801  reads as the verb it is
    """Batches of `rank`'s share of `samples`, again at each iteration, each sample at one rank."""

    samples: Samples
    rank: int
    size: int

    def __post_init__(self) -> None:
        _require_rank(self.rank, self.size)

    def __iter__(self) -> Iterator[Batch]:
        mine = torch.arange(len(self.samples))[self.rank :: self.size]
        parts = mine.split(TEST_BATCH_SIZE) if len(mine) else ()
        return self.samples.stream((part, (CHANGE, 0)) for part in parts)
