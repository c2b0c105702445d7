"""A multilayer perceptron: the cheapest model that learns real images, for many runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import nn

from harness.workloads.models.base import Shape, Times, require_images


@dataclass(frozen=True)
class MLP:
    """Fully-connected layers of `hidden` units with rectifiers between, and one for the classes.

    `rectified` weights keep the scale of activations at any depth (He et al., 2015). torch's
    initial weights lose a factor of 2.4 in every layer.
    """

    name: str = "mlp"
    hidden: Sequence[int] = (256, 256, 256)
    rectified: bool = False
    times: Times | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(units, int) and units >= 1 for units in self.hidden):
            raise ValueError(f"hidden must be whole numbers >= 1, got {list(self.hidden)}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        require_images(self.name, shape)
        layers: list[nn.Module] = [nn.Flatten()]
        before = prod(shape)
        for units in self.hidden:
            layers += [nn.Linear(before, units), nn.ReLU()]
            before = units
        network = nn.Sequential(*layers, nn.Linear(before, classes))
        if self.rectified:
            _rectify_(network)
        return network


def _rectify_(network: nn.Sequential) -> None:
    for layer in network:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
