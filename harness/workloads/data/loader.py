"""Deterministic batches of one rank, and its share of a test set."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from compressors.rng import generator
from harness.workloads.data.base import Batch, Plan, Samples

ORDER, CHANGE = 1, 2  # separate streams: which samples, and how they are augmented
TEST_BATCH_SIZE = 256
TEST_ROWS = 8  # of a text's test batches


def _require_rank(rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise ValueError(f"rank must be in [0, {size}), got {rank}")


@dataclass(frozen=True)
class Batches:
    """Endless batches of `rank` among `size`, determined by `seed`, from step `first` on.

    Every epoch is shuffled and cut into global batches, of which each rank takes its part. So any
    number of workers trains on the same global batch. The remainder is dropped.

    A text, whose samples are in order, is cut into as many equal streams as a global batch has
    rows. Every row of a worker's batches reads one stream from begin to end, epoch after epoch.
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
        begun, done = divmod(self.first, steps)
        for epoch in count(begun):
            parts = self._parts(epoch)
            for step in range(done if epoch == begun else 0, steps):
                yield parts[step], (CHANGE, self.seed, epoch, step, self.rank)

    def _parts(self, epoch: int) -> Tensor:
        """Return the samples of each of this rank's batches, [steps, batch_size]."""
        steps, batch_size = self.steps_per_epoch, self.batch_size
        used = steps * self.size * batch_size
        if self.samples.in_order:
            return torch.arange(used).view(self.size, batch_size, steps)[self.rank].T
        source = generator(ORDER, self.seed, epoch)
        order = torch.randperm(len(self.samples), generator=source)
        return order[:used].view(steps, self.size, batch_size)[:, self.rank]


@dataclass(frozen=True)
class shard:  # noqa: N801  reads as the verb it is
    """Batches of `rank`'s share of `samples`, repeated at each iteration. Ranks share no sample.

    A share of a text is one piece, cut into streams. The last stream is the shortest, so later
    batches may lack rows at their end.
    """

    samples: Samples
    rank: int
    size: int

    def __post_init__(self) -> None:
        _require_rank(self.rank, self.size)

    def __iter__(self) -> Iterator[Batch]:
        everything = torch.arange(len(self.samples))
        if self.samples.in_order:
            parts = _streams(everything.tensor_split(self.size)[self.rank])
        else:
            parts = list(everything[self.rank :: self.size].split(TEST_BATCH_SIZE))
        return self.samples.stream((part, (CHANGE, 0)) for part in parts if len(part))


def _streams(samples: Tensor) -> list[Tensor]:
    """Yield batches whose rows each read one of TEST_ROWS pieces of `samples`, in order."""
    steps = -(-len(samples) // TEST_ROWS)
    return [samples[step::steps] for step in range(steps)]
