"""Handwritten digits (Alpaydin and Kaynak, 1998): 1,797 real 8 x 8 images inside scikit-learn."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from harness.workloads.data.base import Shape
from harness.workloads.data.samples import InMemory

LEVELS = 16  # brightest pixel
TEST_SHARE = 0.2
SPLIT = 0  # seed of the split, the same in every run


@dataclass(frozen=True)
class Digits:
    """1,437 training and 360 test images, classes in equal shares; `size` enlarges them."""

    name: str = "digits"
    size: int = 8  # px
    classes: ClassVar[int] = 10
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        if not 8 <= self.size <= 224:
            raise ValueError(f"size must be in [8, 224] px, got {self.size}")

    @property
    def shape(self) -> Shape:
        return 1, self.size, self.size

    def check(self) -> None:
        """Nothing to check: the data comes with scikit-learn."""

    def train(self) -> InMemory:
        return self._splits()[0]

    def test(self) -> InMemory:
        return self._splits()[1]

    def _splits(self) -> tuple[InMemory, InMemory]:
        train, test, *labels = _stored()
        mean, deviation = (train / LEVELS).mean(), (train / LEVELS).std()

        def prepared(images: Tensor) -> Tensor:
            inputs = ((images / LEVELS - mean) / deviation).float()[:, None]
            return functional.interpolate(inputs, size=(self.size, self.size), mode="bilinear")

        return InMemory(prepared(train), labels[0]), InMemory(prepared(test), labels[1])


@cache
def _stored() -> tuple[Tensor, ...]:
    """Images of the splits, [samples, 8, 8] from 0 to 16, and labels; read once in a process."""
    from sklearn.datasets import load_digits  # slow to import
    from sklearn.model_selection import train_test_split

    stored = load_digits()
    splits = train_test_split(
        stored.images,
        stored.target,
        test_size=TEST_SHARE,
        stratify=stored.target,
        random_state=SPLIT,
    )
    return tuple(torch.from_numpy(part) for part in splits)
