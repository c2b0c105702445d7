"""The networks against their papers: sizes, shortcuts, and what they refuse."""

import pytest
import torch

from harness.models.base import Times, backward_shares, multiply_adds
from harness.models.convnet import ConvNet
from harness.models.mlp import MLP
from harness.models.resnet_cifar import Block, ResNetCifar
from harness.models.torchvision_models import VGG16, ResNet

CIFAR, IMAGENET, DIGITS = (3, 32, 32), (3, 224, 224), (1, 8, 8)


@pytest.mark.parametrize(
    ("architecture", "shape", "classes", "parameters"),
    [
        (ResNetCifar(), CIFAR, 10, 269_722),
        (ResNetCifar(depth=56), CIFAR, 10, 853_018),
        (ResNet("resnet18", 18), IMAGENET, 1000, 11_689_512),
        (ResNet("resnet50", 50), IMAGENET, 1000, 25_557_032),
        (ResNet("resnet50", 50), IMAGENET, 1001, 25_559_081),  # DC2, table 2
        (ResNet("resnet18_cifar", 18, "cifar"), CIFAR, 10, 11_173_962),
        (VGG16(), IMAGENET, 1000, 138_357_544),
        (VGG16("vgg16_cifar", "cifar"), CIFAR, 11, 14_982_987),  # DC2, table 2
        (ConvNet(), DIGITS, 10, 159_850),  # conf/profile scales link rates by it
        (MLP(), DIGITS, 10, 150_794),  # so do conf/profile/pace_*
        (MLP(hidden=()), DIGITS, 10, 650),
    ],
)
def test_number_of_parameters(architecture, shape, classes, parameters):
    with torch.device("meta"):
        model = architecture.build(shape, classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_same_seed_gives_the_same_weights():
    for architecture in (ConvNet(), ResNetCifar(depth=8)):
        weights = []
        for _ in range(2):
            torch.manual_seed(3)
            weights.append(architecture.build(DIGITS, 10).state_dict())
        assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_shortcut_is_the_thinned_input_between_zero_channels():
    inputs = torch.arange(2 * 4 * 4.0).view(1, 2, 4, 4) + 1
    shortcut = Block(2, 4)._shortcut(inputs)
    assert torch.equal(shortcut[:, 1:3], inputs[:, :, ::2, ::2])
    assert not shortcut[:, [0, 3]].any()
    assert Block(2, 2)._shortcut(inputs) is inputs


def test_cifar_stem_keeps_the_resolution():
    with torch.device("meta"):
        model = ResNet("resnet18_cifar", 18, "cifar").build(CIFAR, 10)
        images = torch.empty(1, *CIFAR)
        assert model.maxpool(model.conv1(images)).shape[-2:] == (32, 32)


def test_multiply_adds_of_a_network_counted_by_hand():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(4, 6, 3, groups=2),  # 5 x 5 -> 3 x 3
        torch.nn.BatchNorm2d(6),
        torch.nn.Flatten(),
        torch.nn.Linear(54, 2, bias=False),
    )
    assert multiply_adds(model, (4, 5, 5)) == {
        "0.weight": 6 * 9 * 2 * 9,
        "0.bias": 54,
        "1.weight": 54,
        "1.bias": 54,
        "3.weight": 108,
    }
    assert backward_shares(model, (4, 5, 5))["3.weight"] == 108 / (972 + 3 * 54 + 108)


def test_counting_leaves_the_model_as_it_was():
    model = ConvNet().build(DIGITS, 10)
    backward_shares(model, DIGITS)
    assert model.training and not any(layer._forward_hooks for layer in model.modules())
    assert next(model.parameters()).device.type == "cpu"


def test_times_are_proportional_to_the_batch():
    times = Times(0.1, 0.2, 160, "V100", "a table").at(40)
    assert (times.forward_s, times.backward_s, times.batch_size) == (0.025, 0.05, 40)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResNetCifar(depth=21), "depth must be 6 n .* 2 .* got 21"),
        (lambda: ResNet("resnet", 19), "depth must be one of 18, 34, 50, 101, 152, got 19"),
        (lambda: ResNet("resnet", 18, "mnist"), "stem must be one of imagenet, cifar, got 'mnist'"),
        (lambda: VGG16(stem="mnist"), "stem must be one of imagenet, cifar, got 'mnist'"),
        (lambda: VGG16(dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
        (lambda: VGG16().build(DIGITS, 10), "needs 32 px"),
        (lambda: ConvNet(width=12), "width must be a multiple of 8, got 12"),
        (lambda: ConvNet().build((1, 4, 4), 10), "needs images of 8 px or more"),
        (lambda: Times(0.0, 1.0, 16, "", ""), "times.forward_s must be .* > 0, got 0.0"),
        (lambda: Times(1.0, float("nan"), 16, "", ""), "times.backward_s must be .* got nan"),
        (lambda: Times(1.0, 1.0, 0, "", ""), "times.batch_size must be .* got 0"),
    ],
)
def test_refuses_with_value_and_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_an_mlp_refuses():
    with pytest.raises(ValueError, match=r"hidden must be whole numbers >= 1, got \[64, 0\]"):
        MLP(hidden=[64, 0])
