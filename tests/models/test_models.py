"""The networks against their papers: sizes, shortcuts, and what they refuse."""

import dataclasses

import pytest
import torch

from harness.workloads.models.base import Times, backward_shares, multiply_adds
from harness.workloads.models.convnet import ConvNet
from harness.workloads.models.lstm import LSTM
from harness.workloads.models.mlp import MLP
from harness.workloads.models.resnet_cifar import Block, ResNetCifar
from harness.workloads.models.torchvision_models import VGG, ResNet

CIFAR, IMAGENET, DIGITS, TEXT = (3, 32, 32), (3, 224, 224), (1, 8, 8), (35,)


@pytest.mark.parametrize(("architecture", "shape", "classes", "parameters"), [
    (ResNetCifar(), CIFAR, 10, 269_722),
    (ResNetCifar(depth=56), CIFAR, 10, 853_018),
    (ResNet("resnet18", 18), IMAGENET, 1000, 11_689_512),
    (ResNet("resnet50", 50), IMAGENET, 1000, 25_557_032),
    (ResNet("resnet50", 50, spare_classes=1), IMAGENET, 1000, 25_559_081),  # DC2, table 2
    (ResNet("resnet18_cifar", 18, "cifar"), CIFAR, 10, 11_173_962),
    (VGG(), IMAGENET, 1000, 138_357_544),
    (VGG("vgg19", depth=19), IMAGENET, 1000, 143_667_240),  # COVAP, table 5
    (ResNet("resnet101", 101), IMAGENET, 1000, 44_549_160),  # COVAP, table 6
    (ResNet("resnet152", 152), IMAGENET, 1000, 60_192_808),  # ACP-SGD, table 1
    (VGG("vgg16_cifar", "cifar", spare_classes=1), CIFAR, 10, 14_982_987),  # DC2, table 2
    (ResNet("resnet18", 18), IMAGENET, 100, 11_227_812),  # NetSenseML on CIFAR-100
    (VGG(), IMAGENET, 100, 134_670_244),
    (LSTM("lstm_ptb"), TEXT, 10_000, 66_034_000),  # DC2, table 2
    (LSTM(hidden=64), TEXT, 1_000, 195_560),  # conf/profile scales link rates by it
    (ConvNet(), DIGITS, 10, 159_850),  # conf/profile scales link rates by it
    (MLP(), DIGITS, 10, 150_794),  # so do conf/profile/pace_*
    (MLP(hidden=()), DIGITS, 10, 650),
])  # fmt: skip
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
    counts = {
        "0.weight": 6 * 9 * 2 * 9,
        "0.bias": 54,
        "1.weight": 54,
        "1.bias": 54,
        "3.weight": 108,
    }
    assert multiply_adds(model, (4, 5, 5)) == counts
    assert backward_shares(model, (4, 5, 5))["3.weight"] == 108 / (972 + 3 * 54 + 108)


def test_multiply_adds_of_an_lstm_counted_by_hand():
    words, hidden, vocabulary = 5, 3, 7
    counts = multiply_adds(LSTM(hidden=hidden, layers=1).build((words,), vocabulary), (words,))
    assert counts["embedding.weight"] == words * hidden
    assert counts["lstm.weight_hh_l0"] == counts["lstm.weight_ih_l0"] == words * 4 * hidden**2
    assert counts["decoder.weight"] == words * hidden * vocabulary


def test_an_lstm_goes_on_where_it_was():
    """Two halves with the state handed over are the whole; fewer rows are the first ones."""
    model = LSTM(hidden=4, dropout=0.0).build((6,), 9)
    text = torch.randint(9, (3, 6), generator=torch.Generator().manual_seed(0))
    whole, _ = model(text)
    first, state = model(text[:, :3])
    second, _ = model(text[:, 3:], state)
    assert torch.allclose(torch.cat([first, second], dim=1), whole, atol=1e-6)
    fewer, _ = model(text[:2, 3:], state)
    assert torch.allclose(fewer, second[:2], atol=1e-6)
    assert not torch.allclose(model(text[:, 3:])[0], second, atol=1e-6)


@pytest.mark.parametrize("architecture", [ResNet("resnet18", 18), VGG()])
def test_published_weights_begin_all_layers_but_the_last(architecture, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNET_DATA", str(tmp_path))
    stored = architecture.build((3, 32, 32), 12).state_dict()
    torch.save(stored, tmp_path / "file.pth")
    begun = dataclasses.replace(architecture, weights="file.pth")
    begun.check_files()
    network = begun.build((3, 32, 32), 10).state_dict()
    other = [key for key in stored if not torch.equal(stored[key], network[key])]
    last = "fc" if "fc.weight" in stored else "classifier.6"
    assert other == [f"{last}.weight", f"{last}.bias"]
    with pytest.raises(ValueError, match=rf"must fit {begun.name} in all layers but {last}: .* is"):
        begun.build((1, 32, 32), 10)


def test_missing_weights_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNET_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no absent\.pth.*model\.weights=null"):
        ResNet("resnet18", 18, weights="absent.pth").check_files()


def test_images_and_texts_are_not_confused():
    for architecture in (ConvNet(), MLP(), ResNetCifar(), ResNet("resnet18", 18), VGG()):
        with pytest.raises(ValueError, match=r"takes images .* got samples of \(35,\)"):
            architecture.build(TEXT, 10)
    with pytest.raises(ValueError, match=r"lstm takes texts .* got samples of \(1, 8, 8\)"):
        LSTM().build(DIGITS, 10)


def test_counting_leaves_the_model_as_it_was():
    model = ConvNet().build(DIGITS, 10)
    backward_shares(model, DIGITS)
    assert model.training and not any(layer._forward_hooks for layer in model.modules())
    assert next(model.parameters()).device.type == "cpu"


def test_times_are_proportional_to_the_batch():
    times = Times(0.1, 0.2, 160, "V100", "a table").at(40)
    assert (times.forward_s, times.backward_s, times.batch_size) == (0.025, 0.05, 40)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: ResNetCifar(depth=21), "depth must be 6 n .* 2 .* got 21"),
    (lambda: ResNet("resnet", 19), "depth must be one of 18, 34, 50, 101, 152, got 19"),
    (lambda: ResNet("resnet", 18, "mnist"), "stem must be one of imagenet, cifar, got 'mnist'"),
    (lambda: VGG(stem="mnist"), "stem must be one of imagenet, cifar, got 'mnist'"),
    (lambda: VGG(depth=18), "depth must be one of 16, 19, got 18"),
    (lambda: VGG(dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
    (lambda: VGG(spare_classes=-1), "spare_classes must be >= 0, got -1"),
    (lambda: LSTM(layers=0), "layers must be >= 1, got 0"),
    (lambda: LSTM(spread=0.0), "spread must be > 0, got 0.0"),
    (lambda: LSTM(dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
    (lambda: VGG().build(DIGITS, 10), "needs 32 px"),
    (lambda: ConvNet(width=12), "width must be a multiple of 8, got 12"),
    (lambda: ConvNet().build((1, 4, 4), 10), "needs images of 8 px or more"),
    (lambda: Times(0.0, 1.0, 16, "", ""), "times.forward_s must be .* > 0, got 0.0"),
    (lambda: Times(1.0, float("nan"), 16, "", ""), "times.backward_s must be .* got nan"),
    (lambda: Times(1.0, 1.0, 0, "", ""), "times.batch_size must be .* got 0"),
])  # fmt: skip
def test_refuses_with_value_and_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_rectified_weights_keep_the_scale_of_activations_through_many_layers():
    inputs, spread = torch.randn(64, *DIGITS), {}
    for rectified in (True, False):
        torch.manual_seed(0)
        model = MLP(hidden=[128] * 12, rectified=rectified).build(DIGITS, 10)
        spread[rectified] = float((model(inputs) - model[-1].bias).std())
    assert 0.3 < spread[True] < 5 and spread[False] < 0.05


def test_what_an_mlp_refuses():
    with pytest.raises(ValueError, match=r"hidden must be whole numbers >= 1, got \[64, 0\]"):
        MLP(hidden=[64, 0])
