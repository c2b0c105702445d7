"""All ranks' gradients by one pass: the same bits, or each rank computes its own."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout

from harness.engine.training.buckets import Buckets
from harness.engine.training.task import Task
from harness.virtual import batched
from harness.virtual.batched import MOST_ELEMENTS, TRIALS, OnePass, Share, suits
from harness.virtual.replica import Borrowed
from tests.virtual.runs import DETERMINED, simulated

TABLES = ("steps.csv", "evaluations.csv", "timeline.csv", "links.csv")
STAND_IN = ("model=mlp_as_resnet50", "dataset=glyphs", "dataset.classes=20", "network/device=v100")
TOPK = (*DETERMINED, "method=topk", "controller.density=0.1", "workers=4", "batch_size=8",
        "steps=8")  # fmt: skip
LEFT_TO_RANKS = {  # and how many passes are tried
    "model=lstm_as_lstm_ptb dataset=pydoc": 1,  # it carries a state
    "model=resnet20 model.depth=8": 0,  # it keeps statistics of its batches
    "model=convnet accumulate=2": 0,
    "model=convnet precision=bf16": 0,
    "model=convnet emulation.compute=measured": 0,  # whose time is its own
    "model=convnet workers=1": 0,
}
TASK = Task("accuracy", torch.device("cpu"))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ranks each pass over all of them had."""
    made: list[int] = []
    whole = OnePass._in_one_pass

    def counted(self: OnePass, task: Task, shares: Any) -> list[float]:
        made.append(len(shares))
        return whole(self, task, shares)

    monkeypatch.setattr(OnePass, "_in_one_pass", counted)
    return made


def in_time(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Trials take these seconds, in turn one pass and one by one."""
    took = iter([reading for second in seconds for reading in (0.0, second)])
    monkeypatch.setattr(batched, "time", SimpleNamespace(thread_time=lambda: next(took)))


def test_a_stand_in_s_run_is_the_same_in_one_pass(tmp_path, passes, monkeypatch):
    in_time(monkeypatch, *[1.0, 2.0] * TRIALS)
    ours = simulated(tmp_path / "ours", *STAND_IN, *TOPK)
    assert passes == [4] * (8 + TRIALS)
    monkeypatch.setattr(Borrowed, "is_batched", lambda self, task: False)
    theirs = simulated(tmp_path / "theirs", *STAND_IN, *TOPK)
    assert len(passes) == 8 + TRIALS
    for name in TABLES:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


def test_what_is_slower_in_one_pass_is_left_to_ranks(tmp_path, passes, monkeypatch):
    in_time(monkeypatch, *[2.0, 1.0] * TRIALS)
    simulated(tmp_path, *STAND_IN, *TOPK)
    assert passes == [4] * (2 * TRIALS - 1)


@pytest.mark.parametrize("words", LEFT_TO_RANKS)
def test_what_has_more_than_weights_is_left_to_ranks(words, tmp_path, passes):
    own = [] if "dataset=" in words else ["dataset=digits"]
    run = simulated(tmp_path, *TOPK, *own, *words.split())
    assert '"state": "succeeded"' in (run / "status.json").read_text()
    assert len(passes) == LEFT_TO_RANKS[words]


class Drawing(nn.Linear):
    """Draws random numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return dropout(super().forward(x), 0.5)


class Telling(nn.Linear):
    """Has other bits in the first pass, which is that over all ranks."""

    passes = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return super().forward(x) * (1.0001 if self.passes == 1 else 1.0)


def shares_of(model: nn.Module) -> list[Share]:
    named = dict(model.named_parameters())
    rows = torch.Generator().manual_seed(3)
    return [
        Share(torch.randn(5, 4, generator=rows), torch.arange(5) % 3, Buckets(named, 25.0))
        for _ in range(3)
    ]


@pytest.mark.parametrize("kind", [Drawing, Telling])
def test_other_bits_or_random_numbers_close_it_for_good(kind: type[nn.Linear]) -> None:
    model = kind(4, 3)
    before, one_pass = torch.get_rng_state(), OnePass(model)
    assert one_pass.losses(TASK, shares_of(model)) == [None] * 3
    assert not one_pass.is_open and torch.equal(before, torch.get_rng_state())


class Scaling(nn.Module):
    """Has the same bits in one pass on every processor; products of matrices need not."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :3] * self.weight


def test_a_plain_model_has_each_rank_s_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    in_time(monkeypatch, *[1.0, 2.0] * TRIALS)
    model = Scaling()
    one_pass, shares = OnePass(model), shares_of(model)
    for _ in range(TRIALS + 1):
        losses = one_pass.losses(TASK, shares)
    assert one_pass.is_open and model.weight.grad is None
    for loss, share in zip(losses, shares, strict=True):
        expected = TASK.loss(TASK.scores(model, share.inputs), share.labels)
        expected.backward()
        assert loss == expected.item()
        own = [each.flatten() for laid in share.buckets.laid for each in laid.gradients]
        named = [model.get_parameter(n).grad for laid in share.buckets.laid for n in laid.names]
        assert torch.equal(torch.cat(own), torch.cat([each.flatten() for each in named]))
        model.zero_grad()


def test_small_models_without_buffers_and_hooks_suit() -> None:
    assert suits(nn.Linear(4, 3)) and not suits(nn.BatchNorm1d(4))
    assert not suits(nn.Linear(MOST_ELEMENTS, 2))
    looked_into = nn.Sequential(nn.Linear(4, 3))
    looked_into[0].register_forward_hook(lambda *_: None)
    assert not suits(looked_into)
