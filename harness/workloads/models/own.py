"""A user's or library's network: a class or function that makes an nn.Module."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from harness.workloads.by_path import called, check, last
from harness.workloads.models.base import Shape, Times


@dataclass(frozen=True)
class OwnModel:
    """Architecture returned by `make`, a dotted path, for `arguments`.

    `make` also gets `num_classes` and the data set's `shape` if it accepts arguments of these names
    that are not given. Without `times` its computation has to be measured.
    """

    make: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    times: Times | None = None

    def __post_init__(self) -> None:
        check(self.make, self.arguments)

    @property
    def name(self) -> str:
        return last(self.make)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        made = called(self.make, self.arguments, {"num_classes": classes, "shape": shape})
        if not isinstance(made, nn.Module):
            raise ValueError(f"{self.make} must make a torch.nn.Module, got {type(made).__name__}")
        return made
