"""ResNets for small images, with option A shortcuts (He et al., 2016, section 4.2)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.workloads.models.base import Shape, Times, check_layers, require_images


@dataclass(frozen=True)
class ResNetCifar:
    """Three stages of (depth - 2) / 6 blocks with 16, 32 and 64 channels."""

    name: str = "resnet20"
    depth: int = 20
    times: Times | None = None

    def __post_init__(self) -> None:
        if self.depth < 8 or self.depth % 6 != 2:
            raise ValueError(f"depth must be 6 n + 2 with n >= 1 (20, 56, ...), got {self.depth}")
        check_layers(depth=self.depth)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        require_images(self.name, shape)
        blocks = (self.depth - 2) // 6
        layers: list[nn.Module] = [_convolution(shape[0], 16), nn.BatchNorm2d(16), nn.ReLU()]
        channels = 16
        for width in (16, 32, 64):
            for _ in range(blocks):
                layers.append(Block(channels, width))
                channels = width
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
        return nn.Sequential(*layers, *head)


class Block(nn.Module):
    """Two 3x3 convolutions beside an identity, subsampled and zero-padded where channels grow."""

    def __init__(self, before: int, channels: int) -> None:
        super().__init__()
        self.stride = 1 if before == channels else 2
        self.conv1 = _convolution(before, channels, self.stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels)
        self.norm2 = nn.BatchNorm2d(channels)
        self.missing = channels - before

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.norm1(self.conv1(inputs)))
        return torch.relu(self.norm2(self.conv2(hidden)) + self._shortcut(inputs))

    def _shortcut(self, inputs: Tensor) -> Tensor:
        if not self.missing:
            return inputs
        half = self.missing // 2
        thinned = inputs[:, :, :: self.stride, :: self.stride]
        return functional.pad(thinned, (0, 0, 0, 0, half, self.missing - half))


def _convolution(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight)
    return layer
