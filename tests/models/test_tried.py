"""A model and a data set are tried together before anything starts; a misfit names both."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import nn

from harness.config.search_path import choices
from harness.config.settings import BadSetting
from harness.validation import checked
from harness.workloads.models.tried import misfit
from tests.test_settings import settings

IMAGES = ("digits", "cifar10", "cifar100", "imagenet", "synthetic", "glyphs", "shifted_digits")
OF = {"dlrm": ("clicks", "criteo"), "lstm_ptb": ("ptb", "pydoc", "stdlib")}
OF |= {
    "gpt": OF["lstm_ptb"],
    "gpt_as_gpt2": OF["lstm_ptb"],
    "lstm": OF["lstm_ptb"],
    "lstm_as_lstm_ptb": OF["lstm_ptb"],
    "vgg16": IMAGES[1:6],
    "vgg16_cifar": IMAGES[1:6],
    "vgg19": IMAGES[1:6],
}
OF |= dict.fromkeys(("transformer_small", "transformer_iwslt"), ("catalogues", "iwslt14_de_en"))
OF |= dict.fromkeys(("text_conv", "bert_as_bert_cn"), ("passages",))
OF |= dict.fromkeys(("bert_base", "bert_large", "bert_cn", "gpt2"), ())  # of replays alone
MODELS = list(choices("model"))


@cache
def data_sets():
    """Every data set by its name; not where tests are collected, which composes nothing."""
    return {name: settings(f"dataset={name}").build("dataset") for name in choices("dataset")}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_takes_the_data_sets_of_its_kind_and_no_other(model):
    architecture = settings(f"model={model}").build("model")
    alike = defaultdict(set)  # names of data sets that a model cannot tell apart
    for name, data in data_sets().items():
        alike[data.shape, data.classes].add(name)
    tried = [names for names in alike.values() if not misfit(architecture, data_sets()[min(names)])]
    assert set().union(*tried) == set(OF.get(model, IMAGES))


@dataclass(frozen=True)
class Made:
    """An architecture of one network."""

    network: nn.Module
    name: str = "made"
    times: None = None

    def build(self, shape, classes) -> nn.Module:
        return self.network


class Idle(nn.Linear):
    """With weights that nothing uses."""

    def __init__(self) -> None:
        super().__init__(64, 10)
        self.spare = nn.Parameter(torch.zeros(3))
        self.fixed = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(1))


class Detached(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(1)).detach()


@pytest.mark.parametrize(("network", "said"), [
    (nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), ""),
    (nn.Sequential(nn.Flatten(), nn.Linear(64, 11)), ""),  # a spare class
    (nn.Sequential(nn.Flatten(), nn.Linear(64, 9)), "need scores (2, 10), got (2, 9)"),
    (nn.Sequential(nn.Flatten(), nn.Linear(64, 1)), "need scores (2, 10), got (2, 1)"),
    (nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Flatten(0)), "got (20,)"),
    (nn.Linear(8, 10), "got (2, 1, 8, 10)"),
    (nn.Sequential(nn.Flatten(), nn.Linear(63, 10)), "[2, 64] X [63, 10]"),
    (nn.Sequential(nn.Conv2d(3, 10, 8), nn.Flatten()), "Invalid channel dimensions"),
    (Idle(), "no gradient reaches spare; every parameter must take part"),
    (Detached(64, 10), "no gradient reaches weight, bias"),
])  # fmt: skip
def test_what_a_network_would_stumble_over_in_its_first_step_is_told(network, said):
    found = misfit(Made(network.to("meta")), data_sets()["digits"])
    assert said in found and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("model", "data"),
    [("lstm_ptb", "digits"), ("vgg16", "digits"), ("resnet20", "pydoc"), ("dlrm", "catalogues")],
)
def test_a_composition_is_refused_in_one_line_that_names_both(model, data):
    asked = settings(f"model={model}", f"dataset={data}", "emulation.compute=replay")
    with pytest.raises(BadSetting) as refused:
        checked(asked)
    said = str(refused.value)
    assert said.startswith(f"model: {model} does not go with data set ") and "\n" not in said
    assert asked.build("dataset").name in said


class Scores(nn.Module):
    """Makes of its images whatever `made` does."""

    def __init__(self, made) -> None:
        super().__init__()
        self.weight, self.made = nn.Parameter(torch.ones(1)), made

    def forward(self, images: torch.Tensor):
        return self.made(images.flatten(1)[:, :10] * self.weight)


class NoForward(nn.Linear):
    forward = nn.Module.forward


@pytest.mark.parametrize(("network", "said"), [
    (Scores(lambda scores: {"logits": scores}), "scores must be a tensor of floats, got a dict"),
    (Scores(lambda scores: None), "scores must be a tensor of floats, got None"),
    (Scores(lambda scores: scores.long()), "a tensor of floats, got int64 [2, 10] on meta"),
    (Scores(lambda scores: {}["logits"]), "logits"),
    (NoForward(64, 10), 'is missing the required "forward" function'),
])  # fmt: skip
def test_a_model_that_makes_no_scores_is_told_before_a_run(network, said):
    assert said in misfit(Made(network.to("meta")), data_sets()["digits"])
