"""Small nets that stand for large ones: tensors in the same proportions, ready at the same times.

The exchange of a model depends on the sizes of its tensors, and on when backward has each ready.
DDP's buckets are scaled with the tensors (`scale`), so a stand-in has as many as its original.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor, nn
from torch.nn import functional

from harness.workloads.buckets import bucket_names
from harness.workloads.data.base import DataSet
from harness.workloads.models.base import (
    MOST_PARAMETERS,
    Architecture,
    Shape,
    Times,
    backward_shares,
    require_images,
)
from harness.workloads.models.bert import BERT
from harness.workloads.models.gpt import GPT
from harness.workloads.models.lstm import LSTM
from profiles.limits import check_between

SIDE = 8  # px that images are pooled to
SLACK = 1.05  # of the largest tensor: limit of a run, so that biases go with their weights


@dataclass(frozen=True)
class Original:
    """A published model, and the data set that determines its tensors' shapes."""

    model: Architecture
    dataset: DataSet
    batch_size: int  # of a worker's step

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"original.batch_size must be >= 1, got {self.batch_size}")

    @cached_property
    def _network(self) -> nn.Module:
        with torch.device("meta"):
            return self.model.build(self.dataset.shape, self.dataset.classes)

    @cached_property
    def shapes(self) -> dict[str, Size]:
        """Return every tensor's shape by name, in order of registration."""
        return {name: tensor.shape for name, tensor in self._network.named_parameters()}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return every tensor's number of elements by name, in order of registration."""
        return {name: shape.numel() for name, shape in self.shapes.items()}

    @cached_property
    def shares(self) -> dict[str, float]:
        """Return every tensor's share of backward, by name."""
        return backward_shares(self._network, self.dataset.shape)

    def times(self, batch_size: int) -> Times | None:
        """Return the original's step times as those of a stand-in's step of `batch_size`."""
        if self.model.times is None:
            return None
        own = self.model.times.at(self.batch_size)
        source = f"{self.model.name} at batch {self.batch_size}: {own.source}"
        return Times(own.forward_s, own.backward_s, batch_size, own.device, source)


def represented(architecture: Architecture) -> int | None:
    """Return the elements of the model that this one stands for, or None if it is no stand-in."""
    original: Original | None = getattr(architecture, "original", None)
    return None if original is None else sum(original.sizes.values())


class TensorGroup(NamedTuple):
    """Adjacent tensors of an original, which become one tensor of its stand-in."""

    elements: int
    share: float  # of backward
    closes: bool  # a bucket

    def joined(self, other: "TensorGroup") -> "TensorGroup":
        return TensorGroup(self.elements + other.elements, self.share + other.share, other.closes)


def runs(original: Original) -> list[TensorGroup]:
    """Group the original's tensors, last first, each group within one bucket and not too large."""
    sizes, shares = original.sizes, original.shares
    most, found = SLACK * max(sizes.values()), list[TensorGroup]()
    for bucket in bucket_names(sizes, None):
        for name in bucket:
            one = TensorGroup(sizes[name], shares[name], closes=name == bucket[-1])
            fits = found and not found[-1].closes and found[-1].elements + one.elements <= most
            found.append(found.pop().joined(one) if fits else one)
    return found


@dataclass(frozen=True)
class Perceptron:
    """A residual perceptron on images with one layer of one tensor for every group of the original.

    It has `parameters` parameters, up to the rounding to whole rows.
    """

    name: str
    original: Original
    parameters: int
    batch_size: int  # of a step, which takes the time of the original's
    times: Times | None = None  # None: the original's

    def __post_init__(self) -> None:
        check_between(1, MOST_PARAMETERS, parameters=self.parameters)
        _take_times(self)

    def scale(self, shape: Shape, classes: int) -> float:
        """Return the ratio of this model's elements, and of its bucket bytes, to the original's."""
        return self.parameters / sum(self.original.sizes.values())

    def build(self, shape: Shape, classes: int) -> nn.Module:
        require_images(self.name, shape)
        width, found = shape[0] * SIDE * SIDE, runs(self.original)
        rows = list(_rows(found, self.scale(shape, classes) / width))
        shares = [run.share for run in found]
        of_head = min(1.0, classes / rows[0])  # the first to be ready
        if of_head < 1:
            rows[0] -= classes
            shares = [shares[0] * of_head, shares[0] * (1 - of_head), *shares[1:]]
        else:
            del rows[0]
        layers = [Layer(number, width, depth=len(rows)) for number in reversed(rows)]
        network = nn.Sequential(
            nn.AdaptiveAvgPool2d(SIDE),
            nn.Flatten(),
            nn.LayerNorm(width, elementwise_affine=False),
            *layers,
            nn.LayerNorm(width, elementwise_affine=False),
            nn.Linear(width, classes, bias=False),
        )
        names = [name for name, _ in network.named_parameters()]
        told = dict(zip(names, reversed(shares), strict=True))
        object.__setattr__(network, "shares", told)
        return network


def _rows(found: list[TensorGroup], rows_per_element: float) -> Iterator[int]:
    """Return rows of weights per group, at least in proportion to its part of a bucket."""
    exact, whole = 0.0, 0
    for run in found:
        exact += run.elements * rows_per_element
        up_to = max(whole + 1, ceil(exact) if run.closes else round(exact))
        yield up_to - whole
        exact, whole = (0.0, 0) if run.closes else (exact, up_to)


class Layer(nn.Module):
    """x plus the rectified output of `rows` units, summed with either sign, `width` at a time.

    A residual block needs a second matrix to return to the input's width. Here the sums do that, so
    a layer is one tensor with any number of rows.
    """

    def __init__(self, rows: int, width: int, depth: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, rows, bias=False)
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu")
        self.width, self.groups = width, ceil(rows / width)
        share = (depth * self.groups) ** -0.5  # what x gains stays as large as x was at first
        # Of each `width` units, [groups, 1]; no buffer, as every rank would keep one of its own.
        signs = [share, -share] * self.groups
        self.signs = torch.tensor(signs[: self.groups])[:, None]

    def forward(self, x: Tensor) -> Tensor:
        units = functional.relu(self.linear(functional.layer_norm(x, (self.width,))))
        missing = self.groups * self.width - units.shape[1]
        units = functional.pad(units, (0, missing)).view(-1, self.groups, self.width)
        return x + (units * self.signs.to(x.device)).sum(1)


@dataclass(frozen=True, kw_only=True)
class Smaller:
    """A model of its original's form with fewer units, as its data has fewer words."""

    original: Original
    batch_size: int  # of a step, which takes the time of the original's

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]  # of the model beside this class
        _take_times(self)

    def scale(self, shape: Shape, classes: int) -> float:
        """Return the ratio of this model's elements, and of its bucket bytes, to the original's."""
        with torch.device("meta"):
            own = self.build(shape, classes)  # type: ignore[attr-defined]  # likewise
        return sum(each.numel() for each in own.parameters()) / sum(self.original.sizes.values())


@dataclass(frozen=True)
class SmallLSTM(Smaller, LSTM):
    """LSTM of fewer units."""


@dataclass(frozen=True)
class SmallGPT(Smaller, GPT):
    """Decoder of fewer units."""


@dataclass(frozen=True)
class SmallBERT(Smaller, BERT):
    """Encoder of fewer units."""


def _take_times(model: Any) -> None:
    if model.batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {model.batch_size}")
    if model.times is None:
        object.__setattr__(model, "times", model.original.times(model.batch_size))
