"""A user's or library's data set: a map-style torch data set of images and classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch

from harness.workloads.by_path import called, check, last
from harness.workloads.data.base import Shape
from harness.workloads.data.samples import Loaded

CPU = torch.device("cpu")  # samples are there, also while a model is built without values


@dataclass(frozen=True)
class OwnData:
    """Training and test split returned by `make`, a dotted path.

    Both calls also get `arguments`. A sample is a float32 tensor, of one shape for all, and the
    number of its class. `workers` processes load samples ahead.
    """

    make: str
    classes: int
    train_arguments: Mapping[str, Any] = field(default_factory=dict)
    test_arguments: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 0
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        for arguments in (self.train_arguments, self.test_arguments):
            check(self.make, {**self.arguments, **arguments})

    @property
    def name(self) -> str:
        return last(self.make)

    @cached_property
    def shape(self) -> Shape:
        with CPU:
            image, _ = self._split(self.test_arguments)[0]
        return tuple(image.shape)

    def check(self) -> None:
        """Raise ValueError unless a sample has the required form, or what making a split raises."""
        for arguments in (self.train_arguments, self.test_arguments):
            split = self._split(arguments)
            if not len(split):
                raise ValueError(f"{self.make} has no sample for {dict(arguments)}")
            sample = split[0]
            if not self._is_sample(sample):
                wanted = f"a float32 tensor and a class in [0, {self.classes})"
                raise ValueError(f"a sample of {self.make} must be {wanted}, got {_told(sample)}")

    def _is_sample(self, sample: Any) -> bool:
        if not isinstance(sample, (tuple, list)) or len(sample) != 2:
            return False
        image, label = sample
        is_image = isinstance(image, torch.Tensor) and image.dtype == torch.float32
        return is_image and 0 <= int(label) < self.classes

    def train(self) -> Loaded:
        return Loaded(self._split(self.train_arguments), self.workers)

    def test(self) -> Loaded:
        return Loaded(self._split(self.test_arguments), self.workers)

    def _split(self, arguments: Mapping[str, Any]) -> Any:
        with CPU:
            return called(self.make, {**self.arguments, **arguments}, {})


def _told(sample: Any) -> str:
    """Describe the types in a sample."""
    parts = sample if isinstance(sample, (tuple, list)) else [sample]
    return ", ".join(type(each).__name__ for each in parts)
