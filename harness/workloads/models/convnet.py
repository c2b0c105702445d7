"""A conv net small enough to train on real images in seconds on one core."""

from dataclasses import dataclass

from torch import nn

from harness.workloads.models.base import Shape, Times, require_images

GROUPS = 8  # of channels normalised together


@dataclass(frozen=True)
class ConvNet:
    """Convolutions of `width`, 2 and 4 `width` channels, and one hidden layer of 4 `width`.

    With group norm (Wu and He, 2018) it learns at rates from 0.02 to 0.1. Unlike batch norm it has
    no state beside the parameters, so the workers' models stay equal in all they hold.
    """

    name: str = "convnet"
    width: int = 32  # channels of the first convolution
    times: Times | None = None

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % GROUPS:
            raise ValueError(f"width must be a multiple of {GROUPS}, got {self.width}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        require_images(self.name, shape)
        if min(shape[1:]) < 8:
            raise ValueError(f"{self.name} needs images of 8 px or more, got {shape}")
        first, second, third = self.width, 2 * self.width, 4 * self.width
        return nn.Sequential(
            *_convolution(shape[0], first),
            nn.MaxPool2d(2),
            *_convolution(first, second),
            nn.MaxPool2d(2),
            *_convolution(second, third),
            nn.AdaptiveMaxPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * third, third),
            nn.ReLU(),
            nn.Linear(third, classes),
        )


def _convolution(before: int, after: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return convolution, nn.GroupNorm(GROUPS, after), nn.ReLU()
