"""Digits that take longer to learn: every image is shifted at random and noisy, also in tests."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from compressors.rng import generator
from harness.workloads.data.base import Shape
from harness.workloads.data.digits import Digits
from harness.workloads.data.samples import InMemory

TESTED = 4  # shifts of each test image
SHIFT_TEST = 3  # key of their randomness, the same in every run


@dataclass(frozen=True)
class ShiftedDigits:
    """1,437 training images, shifted anew each time, and 1,440 test images, shifted once."""

    name: str = "shifted_digits"
    shift: int = 1  # px at most, in each direction, in [0, 4]
    noise: float = 0.12  # deviation, in deviations of the images, in [0, 10]
    classes: ClassVar[int] = 10
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        if self.shift not in range(5):
            raise ValueError(f"shift must be a whole number in [0, 4] px, got {self.shift}")
        if not 0 <= self.noise <= 10:
            raise ValueError(f"noise must be in [0, 10], got {self.noise}")

    @property
    def shape(self) -> Shape:
        return Digits().shape

    def check(self) -> None:
        """Do nothing: the package contains the images."""

    def train(self) -> InMemory:
        plain = Digits().train()
        shifted = partial(_shifted, shift=self.shift, noise=self.noise)
        return InMemory(plain.images, plain.labels, shifted)

    def test(self) -> InMemory:
        plain = Digits().test()
        images, labels = plain.images.repeat(TESTED, 1, 1, 1), plain.labels.repeat(TESTED)
        return InMemory(_shifted(images, generator(SHIFT_TEST), self.shift, self.noise), labels)


def _shifted(images: Tensor, source: torch.Generator, shift: int, noise: float) -> Tensor:
    """Shift `images`, [n, 1, height, width], by up to `shift` px at random, and add noise.

    Return new images of the same shape. The uncovered edge gets the least value of all images.
    `noise` is the standard deviation of Gaussian noise. Random numbers come from `source`.
    """
    n, _, height, width = images.shape
    background = float(images.min())
    padded = functional.pad(images[:, 0], (shift,) * 4, value=background)
    down, right = torch.randint(2 * shift + 1, (2, n, 1), generator=source)
    rows = (down + torch.arange(height))[:, :, None]
    columns = (right + torch.arange(width))[:, None, :]
    moved = padded[torch.arange(n)[:, None, None], rows, columns]
    return (moved + noise * torch.randn(moved.shape, generator=source))[:, None]
