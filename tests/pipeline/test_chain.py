"""Models that are no nn.Sequential and say in which order they call their layers."""

import pytest
import torch
from torch import nn

from harness.engine.pipeline.chain import chain
from harness.engine.pipeline.stages import cuts_of, parts, shapes, share
from harness.workloads.models.base import backward_shares
from harness.workloads.models.torchvision_models import VGG, ResNet

NETWORKS = {
    "resnet18": (ResNet("resnet18", 18), (3, 32, 32)),
    "resnet18_cifar": (ResNet("resnet18_cifar", 18, "cifar"), (1, 8, 8)),
    "resnet50": (ResNet("resnet50", 50), (3, 32, 32)),
    "vgg16": (VGG(dropout=0.0), (3, 32, 32)),
    "vgg16_cifar": (VGG(stem="cifar", batch_norm=True), (3, 32, 32)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("stages", [2, 3])
def test_stages_have_the_names_and_the_result_of_the_whole(name, stages) -> None:
    architecture, shape = NETWORKS[name]
    model = architecture.build(shape, 10).eval()
    cuts = cuts_of(model, shape, stages, None)
    found = parts(model, cuts)
    whole = model.state_dict()
    names = [each for part in found for each in part.state_dict()]
    assert sorted(names) == sorted(whole)
    x = torch.randn(2, *shape)
    result = x
    for part, crossing in zip(found, [*shapes(model, cuts, shape), (10,)], strict=True):
        result = part(result)
        assert result.shape[1:] == crossing
    assert torch.equal(result, model(x))
    shares = backward_shares(model, shape)
    assert sum(share(part, shares) for part in found) == pytest.approx(1)


def test_layers_inside_a_block_stay_together() -> None:
    architecture, shape = NETWORKS["resnet18"]
    names = [name for name, _ in chain(architecture.build(shape, 10))]
    assert names[:6] == ["conv1", "bn1", "relu", "maxpool", "layer1.0", "layer1.1"]
    assert names[-3:] == ["avgpool", "flatten", "fc"]


def test_a_cut_is_not_followed_by_what_works_in_place() -> None:
    architecture, shape = NETWORKS["vgg16"]
    with pytest.raises(ValueError, match=r"as layer 3 does: features.3, got \[3\]"):
        cuts_of(architecture.build(shape, 10), shape, 2, [3])


def test_a_model_that_tells_no_order_is_refused() -> None:
    with pytest.raises(ValueError, match="got a Transformer"):
        chain(nn.Transformer(8, 2, 1, 1, 8))
