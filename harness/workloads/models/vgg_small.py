"""A VGG (Simonyan and Zisserman, 2015) for images of 32 px, small enough for two cores.

As in the original, it has 3x3 convolutions, halvings, and one fully-connected layer with most of
the parameters: 524,800 of 650,808 for 200 classes. Unlike the original it has group norm, as in
`convnet`, so that one learning rate suits many methods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from harness.workloads.models.base import Shape, Times, require_images

GROUPS = 8  # of channels normalised together
SIDE = 4  # px that the last convolution's outputs are pooled to


@dataclass(frozen=True)
class SmallVGG:
    """A convolution of each of `channels` followed by a halving, then `hidden` units."""

    name: str = "vgg_small"
    channels: Sequence[int] = (16, 32, 64)
    hidden: int = 512
    times: Times | None = None

    def __post_init__(self) -> None:
        wrong = [width for width in self.channels if width < 1 or width % GROUPS]
        if wrong or not self.channels:
            raise ValueError(f"channels must be multiples of {GROUPS}, got {list(self.channels)}")
        if self.hidden < 1:
            raise ValueError(f"hidden must be >= 1, got {self.hidden}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        require_images(self.name, shape)
        least = 2 ** len(self.channels)
        if min(shape[1:]) < least:
            raise ValueError(f"{self.name} needs images of {least} px or more, got {shape}")
        layers: list[nn.Module] = []
        for before, after in pairwise([shape[0], *self.channels]):
            convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
            layers += [convolution, nn.GroupNorm(GROUPS, after), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(
            *layers,
            nn.AdaptiveAvgPool2d(SIDE),
            nn.Flatten(),
            nn.Linear(self.channels[-1] * SIDE * SIDE, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, classes),
        )
