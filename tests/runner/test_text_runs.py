"""Training on text: state that goes on, perplexity, clipping; in virtual time and by ranks alike.

An epoch has six steps here, so that the runs pass one.
"""

from pathlib import Path

import pytest
import torch

from harness.config.settings import BadSetting
from harness.engine.training.task import RecurrentState, Task
from harness.reporting.analysis import load
from harness.reporting.analysis.metrics import measure
from tests.data.files import PTB_WORDS, write_ptb
from tests.virtual.runs import DETERMINED, over_gloo, settings_of, simulated, weights

CPU = torch.device("cpu")
LEARNS = ("workers=2", "batch_size=32", "accumulate=2", "optimizer.lr=4", "optimizer.momentum=0")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("data")
    write_ptb(folder)
    model = ("model=lstm_as_lstm_ptb", "model.hidden=8", "optimizer.clip_norm=0.3")
    data = ("dataset=ptb", f"dataset.folder={folder}", f"dataset.vocabulary={PTB_WORDS}")
    return (*model, *data, "dataset.window=4", "method=topk", "controller.density=0.1", *LEARNS)


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory) -> Path:
    return simulated(tmp_path_factory.mktemp("run") / "whole", "steps=9", *text, *DETERMINED)


def test_ranks_learn_what_logical_workers_do(text, whole, tmp_path):
    """Each has its own state, on which evaluation in between has no effect."""
    real = over_gloo(tmp_path / "real", "steps=9", *text)
    for name, value in weights(real).items():
        assert torch.equal(value, weights(whole)[name]), name
    quality = [load.evaluations(run).value.tolist() for run in (real, whole)]
    assert quality[0] == quality[1]


@pytest.mark.parametrize("stop", [4, 6])
def test_going_on_within_a_text_is_as_if_it_had_not_stopped(stop, text, whole, tmp_path):
    begun = simulated(tmp_path / "begun", f"steps={stop}", *text, *DETERMINED)
    go_on = ("steps=9", f"resume_from={begun}")
    for run in (
        simulated(tmp_path / "on", *go_on, *text, *DETERMINED),
        over_gloo(tmp_path / "ranks", *go_on, *text),
    ):
        for name, value in weights(run).items():
            assert torch.equal(value, weights(whole)[name]), (run, name)


def test_perplexity_falls_and_is_the_quality_of_the_run(text, whole):
    found = load.evaluations(whole)
    losses, values = (found[found.metric == m].value for m in ("loss", "perplexity"))
    assert values.to_numpy() == pytest.approx(losses.apply(lambda x: 2.718281828**x).to_numpy())
    assert values.iloc[-1] < values.iloc[0] < 1.5 * PTB_WORDS
    [run] = load.runs(whole).assign(target=values.iloc[-1]).itertuples()
    achieved = measure(run, load.steps(whole), found)
    assert achieved.metric == "perplexity" and achieved.final == values.iloc[-1]
    assert achieved.reached and achieved.time_to_target_s == found.time_s.max()


def test_an_accuracy_of_a_text_is_refused(text):
    said = "target.metric must be perplexity or loss, as data set ptb has it, .* got 'accuracy'"
    with pytest.raises(BadSetting, match=said):
        settings_of(*text, "steps=1", "target.metric=accuracy")
    with pytest.raises(BadSetting, match="target.metric must be accuracy or loss.* digits"):
        settings_of("steps=1", "target.metric=perplexity")


def test_clipping_bounds_the_step(text, tmp_path):
    """Plain SGD moves by rate times norm at most, and does so where the gradient is larger."""
    [before] = [simulated(tmp_path / "0", "steps=1", "optimizer.lr=1e-9", *text[:-3], *DETERMINED)]
    asked = ("steps=1", *text, "optimizer.clip_norm=0.01", "optimizer.weight_decay=0")
    after = simulated(tmp_path / "1", *asked, "method=allreduce", "controller.density=1",
                      *DETERMINED)  # fmt: skip
    moved = [(value - weights(before)[name]).norm() for name, value in weights(after).items()]
    assert torch.stack(moved).norm() == pytest.approx(4 * 0.01, rel=1e-3)


def test_adam_has_its_own_checks_and_moves_by_its_rate(tmp_path):
    adam = ("optimizer.kind=adam", "optimizer.lr=0.001", "optimizer.weight_decay=0", "workers=2")
    before = simulated(tmp_path / "0", "steps=1", "optimizer.lr=0", "workers=2", *DETERMINED)
    after = simulated(tmp_path / "1", "steps=1", *adam, *DETERMINED)
    moved = torch.cat([(v - weights(before)[n]).flatten() for n, v in weights(after).items()])
    assert 0.0009 < moved.abs().max() < 0.00101  # the first step is lr * sign
    for override, said in {
        "optimizer.momentum=1": r"optimizer.momentum must be a number in \[0, 1\)",
        "optimizer.nesterov=true": "optimizer.nesterov must be false with optimizer.kind=adam",
        "optimizer.kind=lamb": "optimizer.kind must be one of sgd, adam, adamw",
        "optimizer.clip_norm=0": r"optimizer.clip_norm must be a number in \(0, 1e20\] or null",
    }.items():
        with pytest.raises(BadSetting, match=said):
            settings_of("steps=1", *adam, override)


def test_decay_apart_from_the_gradient_shrinks_weights_whatever_the_gradient_is(tmp_path):
    """By rate times decay a step; where decay is a part of it, Adam makes another step of it."""
    adam = ("optimizer.lr=0.01", "optimizer.momentum=0.9", "workers=1", "steps=1", *DETERMINED)
    made = {
        f"{kind} {decay}": weights(
            simulated(tmp_path / f"{kind}{decay}", *adam, f"optimizer.kind={kind}",
                      f"optimizer.weight_decay={decay}")
        )
        for kind in ("adam", "adamw") for decay in (0, 0.1)
    }  # fmt: skip
    before = weights(simulated(tmp_path / "0", *adam, "optimizer.lr=0"))
    for name, plain in made["adamw 0"].items():
        assert torch.equal(plain, made["adam 0"][name])
        shrunk = plain - 0.01 * 0.1 * before[name]
        assert torch.allclose(made["adamw 0.1"][name], shrunk, rtol=0, atol=1e-6)
    coupled = [(v - made["adamw 0.1"][n]).abs().max() for n, v in made["adam 0.1"].items()]
    assert max(coupled) > 1e-4


class Counts(torch.nn.Module):
    """Its state is how many batches it saw since a text began."""

    def forward(self, inputs, state=None):
        seen = torch.zeros(1) if state is None else state[0]
        return torch.ones(*inputs.shape, 3) * (seen + 1), (seen + 1,)


def test_state_is_forgotten_where_the_text_begins_again():
    task, inputs = Task("perplexity", CPU), torch.zeros(2, 4)
    for done, expected in ((0, [1, 2, 3, 1, 2, 3]), (4, [1, 2, 1, 2, 3, 1])):
        memory, seen = RecurrentState(period=3, done=done), []
        for _ in expected:
            memory.begin()
            for part in (0, 1):  # micro-batches read different texts
                seen.append(task.scores(Counts(), inputs, memory, part)[0, 0, 0].item())
        assert seen[::2] == seen[1::2] == expected


def test_scores_of_images_and_of_words_are_summed_alike():
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 9.0]])
    labels = torch.tensor([0, 1, 1, 1])
    flat, words = Task("accuracy", CPU), Task("perplexity", CPU)
    images = flat.tested(torch.nn.Identity(), [(scores, labels)])
    text = words.tested(torch.nn.Identity(), [(scores.view(2, 2, 2), labels.view(2, 2))])
    assert torch.equal(images, text) and images[0] == 3 and images[2] == 4
    assert flat.metrics(images)["accuracy"] == 0.75
    loss = torch.nn.functional.cross_entropy(scores, labels).item()
    assert words.metrics(text)["perplexity"] == pytest.approx(torch.tensor(loss).exp().item())
    assert words.metrics(torch.tensor([0.0, 1e9, 1.0]).double())["perplexity"] == float("inf")
