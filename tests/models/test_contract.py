"""Laws of every model: each choice is tested by being there."""

from typing import Any

import pytest
import torch

from harness.config.search_path import choices
from harness.fidelity import layers
from harness.workloads.models.base import Times, backward_shares, multiply_adds
from tests.test_settings import settings

CHOICES = choices("model")
LISTED = ("bert_base", "bert_large", "bert_cn", "gpt2")  # tensors to be replayed
TRAINED = [name for name in CHOICES if name not in LISTED]
SMALL = [n for n in CHOICES if "_as_" in n]  # or assumed
SMALL += ["convnet", "mlp", "transformer_small"]
OF_PASSAGES = ("text_conv", "bert_as_bert_cn")
IMAGES_PER_S = 367  # ResNet-50 on one V100, the source of the other figures


def build(name: str) -> Any:
    return settings(f"model={name}").build("model")


def home(name: str) -> tuple[tuple[int, ...], int]:
    """Shape and classes of the data the model's times hold for."""
    if "lstm" in name:
        return (35,), 10_000 if name == "lstm_ptb" else 1_000
    if "gpt" in name:
        return (64,), 128
    if name in OF_PASSAGES:
        return (1, 20), 64
    if name == "vgg_small":
        return (1, 32, 32), 200
    if name == "dlrm":
        return (39, 1), 2
    if "transformer" in name:
        return (2, 100), 10_000
    if name in SMALL:
        return (1, 8, 8), 10
    return ((3, 32, 32), 10) if "cifar" in name or name == "resnet20" else ((3, 224, 224), 1000)


def network(name: str) -> torch.nn.Module:
    shape, classes = home(name)
    with torch.device("meta"):
        return build(name).build(shape, classes)


@pytest.mark.parametrize("name", TRAINED)
def test_takes_a_batch_to_one_score_per_class(name):
    """Of each sample, or of each word of a text; dlrm has one for its two classes."""
    shape, classes = home(name)
    expected = 1 if name == "dlrm" else classes
    assert scores(network(name), shape).shape == (4, *_labels(shape), expected)


@pytest.mark.parametrize("name", TRAINED)
def test_fits_other_channels_and_classes(name):
    first = 39 if name == "dlrm" else 1 if name in OF_PASSAGES else 2
    shape = (first, *home(name)[0][1:])
    with torch.device("meta"):
        model = build(name).build(shape, 7)
    assert scores(model, shape).shape == (4, *_labels(shape), 7)


def scores(model: torch.nn.Module, shape: tuple[int, ...]) -> torch.Tensor:
    found = model(torch.empty(4, *shape, device="meta"))
    return found[0] if isinstance(found, tuple) else found


def _labels(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a text each word has one, of a pair of sentences each word of the second."""
    return shape[-1:] if len(shape) == 1 or (len(shape) == 2 and shape[0] == 2) else ()


@pytest.mark.parametrize("name", CHOICES)
def test_shares_of_backward_cover_every_parameter_and_sum_to_one(name):
    model = network(name)
    shares = backward_shares(model, home(name)[0])
    assert list(shares) == [parameter for parameter, _ in model.named_parameters()]
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0


@pytest.mark.parametrize("name", CHOICES)
def test_name_is_the_files_and_times_are_complete(name):
    architecture = build(name)
    assert architecture.name == name
    assert isinstance(architecture.times, Times)
    assert architecture.times.source and architecture.times.device


@pytest.mark.parametrize("name", [name for name in CHOICES if name not in SMALL])
def test_times_are_in_proportion_to_multiply_adds(name):
    work = [
        layers.multiply_adds(n)
        if n in LISTED
        else sum(multiply_adds(network(n), home(n)[0]).values())
        for n in (name, "resnet50")
    ]
    times = build(name).times.at(160)
    expected = 160 / IMAGES_PER_S * work[0] / work[1]
    assert times.forward_s == pytest.approx(expected / 3, rel=1e-3)
    assert times.backward_s == pytest.approx(expected * 2 / 3, rel=1e-3)
