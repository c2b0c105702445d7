"""Local steps' own settings: what is refused, which layers are of a fragment, what is due when."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from torch import nn

from harness.config.local_steps import LocalSteps
from harness.engine.local_steps.fragments import fragments_of
from harness.engine.local_steps.gossip import partner
from harness.engine.local_steps.rounds import Rounds


@pytest.mark.parametrize(("given", "said"), [
    ({"h": 10, "fragments": 4}, "h must be a multiple of fragments=4.*got 10; nearest: 8"),
    ({"h": 3, "fragments": 4}, "got 3; nearest: 4"),
    ({"h": 8, "fragments": 4, "lag": 2}, "lag must be below h / fragments = 2.*nearest: 1"),
    ({"blend": 1.5}, r"blend must be a number in \[0, 1\], got 1.5"),
    ({"blend": float("nan")}, "blend must be"),
    ({"outer_lr": 0}, "outer_lr must be a number > 0, got 0"),
    ({"outer_momentum": 1.0}, r"outer_momentum must be a number in \[0, 1\)"),
    ({"outer": "none"}, "outer_momentum must be 0 where outer is none, got 0.9"),
    ({"outer": "adam"}, "outer must be nesterov or momentum or none, got 'adam'"),
    ({"pattern": "odd"}, "pattern must be strided or sequential"),
    ({"h": 0}, "h must be a whole number >= 1, got 0"),
    ({"peers": "pair"}, "peers=pair needs outer=momentum"),
    ({"peers": "pair", "outer": "momentum", "lag": 1},
     "lag must be 0 where peers meet in pairs, got 1"),
    ({"lag": -1}, "lag must be a whole number >= 0"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_the_nearest_that_can(given, said):
    with pytest.raises(ValueError, match=said):
        LocalSteps(**given)


def chain(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("pattern", ["strided", "sequential"])
@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_every_tensor_is_of_one_fragment_whole_layers_of_each(count, pattern):
    model = chain(8, 8, 64, 4)
    fragments = fragments_of(model, count, pattern)
    assert len(fragments) == count and all(each.parameters for each in fragments)
    names = Counter(name for each in fragments for name in each.parameters)
    assert names == Counter(name for name, _ in model.named_parameters())
    layers = [{name.rpartition(".")[0] for name in each.parameters} for each in fragments]
    assert sum(map(len, layers)) == 6
    statistics = {n.rpartition(".")[0]: at for at, e in enumerate(fragments) for n in e.statistics}
    assert all(layer in layers[at] for layer, at in statistics.items()) and len(statistics) == 3


def test_neighbours_share_a_fragment_or_every_other_layer_does():
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(6)))
    places = {
        pattern: [sorted(each.parameters) for each in fragments_of(model, 2, pattern)]
        for pattern in ("strided", "sequential")
    }
    assert places["strided"] == [[f"{n}.weight" for n in (0, 2, 4)],
                                 [f"{n}.weight" for n in (1, 3, 5)]]  # fmt: skip
    assert places["sequential"] == [[f"{n}.weight" for n in (0, 1, 2)],
                                    [f"{n}.weight" for n in (3, 4, 5)]]  # fmt: skip


def test_more_fragments_than_layers_are_refused_and_a_tied_weight_has_one():
    model = nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 4, bias=False))
    model[1].weight = model[0].weight
    with pytest.raises(ValueError, match="fragments must be at most 1, the layers of the model"):
        fragments_of(model, 2, "strided")
    assert list(fragments_of(model, 1, "strided")[0].parameters) == ["0.weight"]
    assert not torch.equal(model[0].weight, torch.zeros(4, 8))


@pytest.mark.parametrize(("h", "fragments", "lag"), [(8, 1, 0), (8, 4, 1), (12, 3, 3), (5, 5, 0)])
def test_a_fragment_is_sent_and_lands_once_a_round_before_the_next_is_sent(h, fragments, lag):
    rounds = Rounds(LocalSteps(h=h, fragments=fragments, lag=lag, warmup_rounds=2))
    sent, landed, under = [], [], 0
    for step in range(2 + 3 * h):
        due = rounds.due(step)
        assert due.dense == (step < 2)
        sent += [(step, each) for each in due.sends]
        under += bool(due.sends)
        assert under <= 1
        landed += [(step, each) for each in due.lands]
        under -= bool(due.lands)
        if due.ends:
            rounds.begin(step + 1)
    assert rounds.number == 5 and under == 0
    assert sent[:fragments] == landed[:fragments] == [(0, each) for each in range(fragments)]
    expected = [
        (2 + turn * h // fragments - 1, (turn - 1) % fragments)
        for turn in range(1, 3 * fragments + 1)
    ]
    assert landed[2 * fragments :] == expected
    assert sent[2 * fragments :] == [(step - lag, each) for step, each in expected]


@pytest.mark.parametrize("warmup_rounds", [0, 3])
@pytest.mark.parametrize(("h", "fragments", "lag"), [(1, 1, 0), (4, 2, 1), (12, 3, 3), (5, 1, 4)])
def test_the_number_of_exchanges_is_that_of_the_rounds(h, fragments, lag, warmup_rounds):
    layout = LocalSteps(h=h, fragments=fragments, lag=lag, warmup_rounds=warmup_rounds)
    rounds, count = Rounds(layout), 0
    for step in range(40):
        assert layout.exchanges(step) == count
        due = rounds.due(step)
        count += bool(due.sends)
        if due.ends:
            rounds.begin(step + 1)


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_partners_choose_each_other_and_change(workers):
    met = set()
    for number in range(40):
        pairs = [partner(rank, workers, number, seed=3) for rank in range(workers)]
        two = {(rank, other) for rank, other in enumerate(pairs) if other is not None}
        assert all(rank != other and pairs[other] == rank for rank, other in two)
        assert pairs.count(None) == workers % 2
        met |= two
    assert len(met) == workers * (workers - 1)
