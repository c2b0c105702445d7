"""A decoder sees what came before, an encoder everything; the VGG's mass is in one layer."""

import pytest
import torch

from harness.workloads.models.base import backward_shares
from harness.workloads.models.bert import BERT
from harness.workloads.models.gpt import GPT
from harness.workloads.models.vgg_small import SmallVGG


def test_a_word_changes_no_score_before_it():
    torch.manual_seed(0)
    model = GPT(width=16, layers=2, heads=2).build((12,), 30)
    words = torch.randint(30, (3, 12))
    changed = words.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 30
    before, after = model(words), model(changed)
    assert torch.allclose(before[:, :7], after[:, :7], atol=1e-6)
    assert ((before[:, 7:] - after[:, 7:]).abs().amax(-1) > 1e-4).all()


def test_it_begins_at_chance_and_learns_what_repeats():
    torch.manual_seed(0)
    model = GPT(width=32, layers=2, heads=2).build((16,), 20)
    words = (torch.arange(17) * 3 % 20).repeat(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def loss() -> torch.Tensor:
        scores = model(words[:, :-1])
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten())

    assert abs(loss().item() - torch.tensor(20.0).log()) < 0.1
    for _ in range(100):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss() < 0.5


def test_tied_scores_are_the_embeddings_and_begin_backward():
    model = GPT(width=16, layers=2, heads=2, tied=True).build((12,), 30)
    untied = GPT(width=16, layers=2, heads=2).build((12,), 30)
    names = [name for name, _ in model.named_parameters()]
    assert "scores.weight" not in names and "scores.weight" in dict(untied.named_parameters())
    assert model(torch.randint(30, (3, 12))).shape == (3, 12, 30)
    shares = backward_shares(model, (12,))
    assert list(shares) == names and sum(shares.values()) == pytest.approx(1)
    assert shares["norm.bias"] > 30 * 12 * 16 / 2 * shares["norm.weight"] / (12 * 16)


def test_of_a_passage_every_word_is_seen_by_the_class_token():
    torch.manual_seed(0)
    model = BERT(vocabulary=30, width=16, layers=1, heads=2, spread=0.3).build((1, 12), 5)
    words = torch.randint(30, (3, 1, 12))
    for place in range(12):
        changed = words.clone()
        changed[:, 0, place] = (changed[:, 0, place] + 1) % 30
        assert ((model(words.float()) - model(changed.float())).abs().amax(-1) > 1e-6).all()
    assert model(words).shape == (3, 5)


def test_one_layer_has_most_of_the_vgg():
    sizes = [each.numel() for each in SmallVGG().build((1, 32, 32), 200).parameters()]
    assert sum(sizes) == 650_808 and max(sizes) == 524_288 > 0.8 * sum(sizes)
    assert SmallVGG().build((3, 48, 40), 7)(torch.zeros(2, 3, 48, 40)).shape == (2, 7)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: GPT(width=0), "width must be >= 1, got 0"),
    (lambda: GPT(width=30, heads=4), "width must be a multiple of heads = 4, got 30"),
    (lambda: GPT(dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
    (lambda: GPT(spread=0.0), "spread must be > 0, got 0.0"),
    (lambda: GPT().build((1, 8, 8), 10), "gpt takes texts"),
    (lambda: BERT(vocabulary=0), "vocabulary must be >= 1, got 0"),
    (lambda: BERT().build((12,), 10), r"bert takes passages \(1, words\)"),
    (lambda: SmallVGG(channels=[12]), r"channels must be multiples of 8, got \[12\]"),
    (lambda: SmallVGG(channels=[]), r"channels must be multiples of 8, got \[\]"),
    (lambda: SmallVGG(hidden=0), "hidden must be >= 1, got 0"),
    (lambda: SmallVGG().build((1, 4, 4), 10), "vgg_small needs images of 8 px or more"),
])  # fmt: skip
def test_refuses_with_value_and_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()
