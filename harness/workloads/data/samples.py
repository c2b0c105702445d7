"""Samples in memory, and map-style torch data sets loaded by worker processes."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from compressors.rng import generator
from harness.workloads.data.base import Batch, Plan

Prepare = Callable[[Tensor, torch.Generator], Tensor]  # stored images [n, ...] -> inputs


def as_they_are(images: Tensor, source: torch.Generator) -> Tensor:
    """Return images unchanged: no augmentation."""
    return images


class InMemory:
    """Images and labels as tensors. `prepare` augments a whole batch at once."""

    in_order = False

    def __init__(self, images: Tensor, labels: Tensor, prepare: Prepare = as_they_are) -> None:
        self.images, self.labels, self._prepare = images, labels, prepare

    def __len__(self) -> int:
        return len(self.labels)

    def stream(self, plan: Plan) -> Iterator[Batch]:
        for indices, key in plan:
            yield self._prepare(self.images[indices], generator(*key)), self.labels[indices]


class Loaded:
    """A torch data set whose transforms use torch's CPU generator, which is seeded per sample.

    `workers` processes load ahead. Batches do not depend on their number.
    """

    in_order = False

    def __init__(self, dataset: Any, workers: int) -> None:
        self._dataset, self._workers = dataset, workers

    def __len__(self) -> int:
        return len(self._dataset)

    def stream(self, plan: Plan) -> Iterator[Batch]:
        loader: DataLoader = DataLoader(
            _Seeded(self._dataset),
            batch_sampler=_Sampler(plan),
            num_workers=self._workers,
            generator=torch.Generator(),  # or it draws a seed from the global one
        )
        return iter(loader)


class _Sampler:
    """A plan in the form that DataLoader wants: lists of indices."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for indices, key in self._plan:
            seeds = torch.randint(2**62, (len(indices),), generator=generator(*key))
            yield list(zip(indices.tolist(), seeds.tolist(), strict=True))


class _Seeded(Dataset):
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, sample: tuple[int, int]) -> Any:
        index, seed = sample
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # the CPU's only; GPU streams stay
            return self._dataset[index]
