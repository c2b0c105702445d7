"""Handwritten digits: 1,797 real images of 8 x 8 pixels, which the package brings along.

They are the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak,
1998, UCI Machine Learning Repository, doi:10.24432/C50P49, CC BY 4.0). Each row of digits.csv.gz
has 64 pixels from 0 to 16 and the digit. Our only change is the order of the rows: the first 1,437
are for training, the others for tests, and both have all digits in equal shares.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from harness.workloads.data.base import Shape
from harness.workloads.data.samples import InMemory

STORED = Path(__file__).with_name("digits.csv.gz")
LEVELS = 16  # brightest pixel
TRAIN_ROWS = 1_437


@dataclass(frozen=True)
class Digits:
    """1,437 training and 360 test images, interpolated to `size` x `size` pixels."""

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
        """Do nothing: the package contains the images."""

    def train(self) -> InMemory:
        return self._splits()[0]

    def test(self) -> InMemory:
        return self._splits()[1]

    def _splits(self) -> tuple[InMemory, InMemory]:
        train, test, *labels = stored()
        mean, deviation = (train / LEVELS).mean(), (train / LEVELS).std()

        def prepared(images: Tensor) -> Tensor:
            inputs = ((images / LEVELS - mean) / deviation).float()[:, None]
            return functional.interpolate(inputs, size=(self.size, self.size), mode="bilinear")

        return InMemory(prepared(train), labels[0]), InMemory(prepared(test), labels[1])


@cache
def stored() -> tuple[Tensor, ...]:
    """Read training and test images, [samples, 8, 8] from 0 to 16, then the labels of both."""
    stored = torch.from_numpy(np.loadtxt(STORED, delimiter=","))
    images, labels = stored[:, :-1].reshape(-1, 8, 8).contiguous(), stored[:, -1].long()
    return *images.tensor_split([TRAIN_ROWS]), *labels.tensor_split([TRAIN_ROWS])
