"""torchvision's ResNets (He et al., 2016) and VGGs (Simonyan and Zisserman, 2015)."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from harness.workloads.data.base import data_folder, not_found
from harness.workloads.models.base import Shape, Times, one_of, require_images

# torchvision is imported where a network is built: reading a configuration stays quick. Both take
# `spare_classes`, scores that no class of the data has, as published sizes of models imply, and
# the `weights` to begin with. Both tell the `order` of their layers, so that they can be cut.

OF_RESNET: tuple[str, ...] = (
    "conv1",
    "bn1",
    "relu",
    "maxpool",
    "layer1",
    "layer2",
    "layer3",
    "layer4",
)
OF_RESNET += ("avgpool", "flatten", "fc")
OF_VGG = ("features", "avgpool", "flatten", "classifier")
CONFIGURATIONS = {16: "D", 19: "E"}  # of a VGG, by its depth


@dataclass(frozen=True)
class ResNet:
    """torchvision's ResNet. The CIFAR stem is one 3x3 convolution of stride 1 without pooling."""

    name: str
    depth: int
    stem: str = "imagenet"  # imagenet | cifar
    times: Times | None = None
    spare_classes: int = 0
    weights: str | None = None  # a path, from the data folder unless absolute

    def __post_init__(self) -> None:
        one_of("depth", self.depth, (18, 34, 50, 101, 152))
        one_of("stem", self.stem, ("imagenet", "cifar"))
        _require_spare(self.spare_classes)

    def check_files(self) -> None:
        check_published(self.name, self.weights)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        from torchvision import models

        require_images(self.name, shape)
        network = getattr(models, f"resnet{self.depth}")(num_classes=classes + self.spare_classes)
        width = network.conv1.out_channels
        if self.stem == "cifar":
            network.conv1 = nn.Conv2d(shape[0], width, 3, padding=1, bias=False)
            network.maxpool = nn.Identity()
        elif shape[0] != network.conv1.in_channels:
            network.conv1 = nn.Conv2d(shape[0], width, 7, stride=2, padding=3, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        return load_published(_in_order(network, OF_RESNET), self.name, self.weights)


@dataclass(frozen=True)
class VGG:
    """Configuration D or E. For CIFAR one hidden layer of 512 replaces two of 4096."""

    name: str = "vgg16"
    stem: str = "imagenet"  # imagenet | cifar
    depth: int = 16
    batch_norm: bool = False
    dropout: float = 0.5
    times: Times | None = None
    spare_classes: int = 0
    weights: str | None = None

    def __post_init__(self) -> None:
        one_of("depth", self.depth, tuple(CONFIGURATIONS))
        one_of("stem", self.stem, ("imagenet", "cifar"))
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        _require_spare(self.spare_classes)

    def check_files(self) -> None:
        check_published(self.name, self.weights)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        from torchvision.models import vgg

        require_images(self.name, shape)
        if min(shape[1:]) < 32:
            raise ValueError(f"{self.name} halves its input five times: needs 32 px, got {shape}")
        classes += self.spare_classes
        features = vgg.make_layers(vgg.cfgs[CONFIGURATIONS[self.depth]], batch_norm=self.batch_norm)
        if shape[0] != 3:
            features[0] = nn.Conv2d(shape[0], 64, 3, padding=1)
        if self.stem == "imagenet":
            network = vgg.VGG(features, num_classes=classes, dropout=self.dropout)
            return load_published(_in_order(network, OF_VGG), self.name, self.weights)
        network = nn.Sequential(
            features,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(512, classes),
        )
        for layer in network.modules():  # by fan-in: without batch norm the signal has to keep up
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        return load_published(network, self.name, self.weights)


def _in_order(network: nn.Module, order: tuple[str, ...]) -> nn.Module:
    """Mark `network` as a chain of children in `order`, with a module `flatten`; return it."""
    network.add_module("flatten", nn.Flatten())
    object.__setattr__(network, "order", order)
    return network


def _require_spare(classes: int) -> None:
    if classes < 0:
        raise ValueError(f"spare_classes must be >= 0, got {classes}")


def check_published(name: str, weights: str | None) -> None:
    """Raise FileNotFoundError unless model `name`'s `weights`, if any, exist."""
    path = _path(weights)
    if path is not None and not path.is_file():
        layout = f"{path.name} as torchvision publishes it, or model.weights=null for random ones"
        raise not_found(f"weights of {name}", path.parent, f"no {path.name}", layout)


def load_published(network: nn.Module, name: str, weights: str | None) -> nn.Module:
    """Load these weights into `network`. ValueError names a misfit. On meta nothing is loaded."""
    path, own = _path(weights), network.state_dict()
    if path is None or next(network.parameters()).is_meta:
        return network
    check_published(name, weights)
    saved = torch.load(path, weights_only=True, map_location="cpu")
    *_, last = (prefix for prefix, layer in network.named_modules() if isinstance(layer, nn.Linear))
    for key, value in own.items():
        if key.rpartition(".")[0] == last or (key not in saved and not value.dim()):
            continue  # older files lack the counters of batch norm
        if key not in saved or saved[key].shape != value.shape:
            found = f"{tuple(saved[key].shape)}" if key in saved else "nothing"
            raise ValueError(
                f"model.weights must fit {name} in all layers but {last}: {key} is "
                f"{tuple(value.shape)}, and {path} has {found} for it"
            )
        own[key] = saved[key]
    network.load_state_dict(own)
    return network


def _path(weights: str | None) -> Path | None:
    """Return the path of the weights, in the data folder unless absolute."""
    return None if weights is None else data_folder(None) / weights
