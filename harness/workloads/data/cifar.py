"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) from the published Python batches, in memory.

Augmentation as in He et al. (2016): a crop of the image padded by 4, and a horizontal flip.
"""

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from harness.workloads.data.base import Shape, data_folder, not_found, written
from harness.workloads.data.samples import InMemory

PADDING = 4  # pixels
FILES = {
    10: (
        "cifar-10-batches-py",
        (*(f"data_batch_{part}" for part in range(1, 6)), "test_batch", "batches.meta"),
    ),
    100: ("cifar-100-python", ("train", "test", "meta")),
}
STATISTICS = {  # of each channel over the training images
    10: ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    100: ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


@dataclass(frozen=True)
class Cifar:
    """50,000 training and 10,000 test images, 3 x 32 x 32. `size` enlarges them."""

    classes: int  # 10 | 100
    folder: str | None = None
    size: int = 32  # px
    metric: ClassVar[str] = "accuracy"
    published: ClassVar[int] = 50_000

    def __post_init__(self) -> None:
        if self.classes not in FILES:
            raise ValueError(f"classes must be 10 or 100, got {self.classes}")
        if not 32 <= self.size <= 512:
            raise ValueError(f"size must be in [32, 512] px, got {self.size}")

    @property
    def name(self) -> str:
        return f"cifar{self.classes}"

    @property
    def shape(self) -> Shape:
        return 3, self.size, self.size

    def check(self) -> None:
        name, files = FILES[self.classes]
        folder = data_folder(self.folder)
        missing = [file for file in files if not (folder / name / file).is_file()]
        if missing:
            layout = f"{name}/ with {', '.join(files)}, as in cifar-{self.classes}-python.tar.gz"
            raise not_found(self.name, folder, f"no {name}/{missing[0]}", layout)

    def check_content(self) -> None:
        """Raise ValueError unless every file is the published one."""
        self.check()
        folder, (name, files) = data_folder(self.folder), FILES[self.classes]
        _check_sums(folder, self.classes, written(folder / name / file for file in files))

    def train(self) -> InMemory:
        return self._split(train=True)

    def test(self) -> InMemory:
        return self._split(train=False)

    def _split(self, train: bool) -> InMemory:
        self.check()
        images, labels = _read(data_folder(self.folder), self.classes, train)
        mean, deviation = torch.tensor(STATISTICS[self.classes]).view(2, 3, 1, 1)
        prepare = partial(_prepare, mean=mean, deviation=deviation, size=self.size, augment=train)
        return InMemory(images, labels, prepare)


@cache
def _check_sums(folder: Path, classes: int, at: tuple[int, ...]) -> None:
    """Check the files' sums once for files that were written `at` these times."""
    for train in (True, False):
        _read(folder, classes, train)


def _read(folder: Path, classes: int, train: bool) -> tuple[Tensor, Tensor]:
    """Return images, uint8 [n, 3, 32, 32], and labels, int64 [n]; ValueError if damaged."""
    from torchvision import datasets  # slow to import

    published = {10: datasets.CIFAR10, 100: datasets.CIFAR100}[classes]
    try:
        stored = published(folder, train=train, download=False)
    except RuntimeError as error:  # its own advice is to download
        name = FILES[classes][0]
        raise ValueError(
            f"{folder / name} is damaged: a file's md5 sum is not the published one"
        ) from error
    images = torch.from_numpy(stored.data).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(stored.targets)


def _prepare(
    images: Tensor,
    source: torch.Generator,
    mean: Tensor,
    deviation: Tensor,
    size: int,
    augment: bool,
) -> Tensor:
    inputs = (images / 255 - mean) / deviation
    if augment:
        inputs = crop_and_flip(inputs, source)
    if size != inputs.shape[-1]:
        inputs = functional.interpolate(inputs, size=(size, size), mode="bilinear")
    return inputs


def crop_and_flip(images: Tensor, source: torch.Generator) -> Tensor:
    """Shift each of [n, c, h, w] by up to PADDING px both ways, and mirror half of them."""
    count, _, height, width = images.shape
    down, right = torch.randint(2 * PADDING + 1, (2, count, 1), generator=source)
    flipped = torch.randint(2, (count, 1), generator=source).bool()
    rows = down + torch.arange(height)
    columns = right + torch.where(flipped, torch.arange(width).flip(0), torch.arange(width))
    padded = functional.pad(images, [PADDING] * 4).permute(0, 2, 3, 1)
    picked = padded[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2).contiguous()
