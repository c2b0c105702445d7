"""Generated images of any shape: noise on one coarse pattern per class, or noise alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from compressors.rng import generator
from harness.workloads.data.base import MOST_SAMPLES, Batch, Plan, Shape
from profiles.limits import check_between

COARSE = 4  # a class's pattern is this many blocks high and wide
PATTERN, NOISE = 1, 2  # streams
TRAIN, TEST = 0, 1


@dataclass(frozen=True)
class Synthetic:
    """Data set whose sample i depends only on `seed`, its split and i, made on demand.

    The label is i % classes. The image is the pattern of its class, of deviation 1, plus noise,
    which is easy to learn. Without patterns there is nothing to learn.
    """

    name: str = "synthetic"
    channels: int = 3
    size: int = 32  # px
    classes: int = 10
    length: int = 5_120  # training samples
    test_length: int = 1_000
    patterns: bool = True
    noise: float = 2.0  # deviation
    seed: int = 0
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        for key, least, most in (
            ("channels", 1, 10_000),
            ("size", 1, 10_000),
            ("classes", 1, MOST_SAMPLES),
            ("length", 1, MOST_SAMPLES),
            ("test_length", 1, MOST_SAMPLES),
            ("noise", 0, 1e20),
        ):
            check_between(least, most, **{key: getattr(self, key)})

    @property
    def shape(self) -> Shape:
        return self.channels, self.size, self.size

    def check(self) -> None:
        """Accept always: the data is generated here."""

    def train(self) -> "Generated":
        return Generated(self, TRAIN, self.length)

    def test(self) -> "Generated":
        return Generated(self, TEST, self.test_length)


@dataclass(frozen=True)
class Generated:
    """One split of a synthetic data set."""

    of: Synthetic
    split: int
    length: int
    in_order: ClassVar[bool] = False
    _patterns: Tensor = field(init=False, repr=False)  # [classes, channels, COARSE, COARSE]

    def __post_init__(self) -> None:
        shape = (self.of.classes, self.of.channels, COARSE, COARSE)
        patterns = torch.randn(shape, generator=generator(PATTERN, self.of.seed))
        object.__setattr__(self, "_patterns", self.of.patterns * patterns)

    def __len__(self) -> int:
        return self.length

    def stream(self, plan: Plan) -> Iterator[Batch]:
        for indices, _ in plan:
            labels = indices % self.of.classes
            noise = torch.stack([self._noise(index) for index in indices.tolist()])
            patterns = functional.interpolate(self._patterns[labels], size=self.of.shape[1:])
            yield patterns + self.of.noise * noise, labels

    def _noise(self, index: int) -> Tensor:
        source = generator(NOISE, self.of.seed, self.split, index)
        return torch.randn(self.of.shape, generator=source)
