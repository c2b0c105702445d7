"""What a thread pushes: nothing is lost but what is drained; and that is drawn, and counted."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from compressors.dct_dp import DCTDP
from compressors.dense import Dense
from controllers.fixed import Fixed
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.reduction import Reduction
from harness.engine.parameter_server.captured import Captured, alone
from harness.engine.parameter_server.gradient import Drain, Gradient
from harness.engine.parameter_server.server_model import FlatParameters

SHAPES = {"a": (40, 50), "b": (50,), "c": (3000,)}
N = sum(math.prod(shape) for shape in SHAPES.values())


def some_model() -> nn.Module:
    """With parameters a, b and c; one bucket."""
    return nn.ParameterDict({name: torch.zeros(shape) for name, shape in SHAPES.items()})


def gradient(
    drain: Drain | None = None, density: float = 0.05, shared: tuple | None = None
) -> "Tried":
    compressor, feedback = shared or (DCTDP(lifespan=5), Residual())
    return made(compressor, Fixed(density), feedback, drain or Drain(None, 0))


class Tried(Gradient):
    """Of a model with one bucket."""

    def __init__(self, reduction: Reduction, captured: Captured, drain: Drain) -> None:
        super().__init__(reduction, captured, drain)
        self.laid = FlatParameters(some_model()).laid
        self.recall(self.laid)


def made(compressor, controller, feedback, drain) -> Tried:
    captured = Captured(0, 1, alone)
    return Tried(Reduction(compressor, controller, "local", feedback, captured), captured, drain)


def drawn(step: int) -> torch.Tensor:
    return torch.randn(N, generator=torch.Generator().manual_seed(step))


def compressed(tried: Tried, step: int, grad: torch.Tensor):
    tried.reduction.open(None)
    tried.laid[0].buffer.copy_(grad)
    return tried.compress(step, tried.laid)


def entries(found) -> tuple[torch.Tensor, torch.Tensor]:
    [[(values, index)]] = found.push.buckets
    return values, index


def sent(found) -> torch.Tensor:
    values, index = entries(found)
    return torch.zeros(N).index_add_(0, index, values)


def residual(tried: Tried) -> torch.Tensor:
    """[N], in the order of the push."""
    return torch.cat([tried.residuals()[name] for name in tried.laid[0].names])


def test_what_is_pushed_and_what_is_kept_make_up_all_gradients():
    tried, total, pushed = gradient(), torch.zeros(N), torch.zeros(N)
    for step in range(12):
        total += drawn(step)
        found = compressed(tried, step, drawn(step))
        index = entries(found)[1]
        assert (index.diff() > 0).all() and index.dtype == torch.int32
        pushed += sent(found)
    torch.testing.assert_close(pushed + residual(tried), total)
    assert 0.02 * N <= entries(found)[0].numel() < 0.5 * N


def test_a_dense_gradient_is_pushed_as_it_is():
    tried = made(Dense(), Fixed(1.0), NoFeedback(), Drain(None, 0))
    found = compressed(tried, 0, drawn(0))
    [[(values,)]] = found.push.buckets
    assert torch.equal(values, drawn(0))


def test_a_gradient_that_is_not_finite_is_not_pushed():
    bad = drawn(0).index_fill_(0, torch.tensor([2020]), torch.nan)
    with pytest.raises(FloatingPointError, match="the gradient of c has 1 of 3000 elements"):
        compressed(gradient(), 0, bad)


def test_a_drain_to_zero_forgets_the_layer_and_no_other():
    tried = gradient(Drain(1.0, 0))
    found = compressed(tried, 0, drawn(0))
    assert found.drained == ["c", "b", "a"]
    assert not residual(tried).any()


def test_drains_are_drawn_by_seed_as_often_as_expected():
    one, again, other = Drain(50.0, 7), Drain(50.0, 7), Drain(50.0, 8)
    schedules = [[drain.due(4) for _ in range(5000)] for drain in (one, again, other)]
    assert schedules[0] == schedules[1] != schedules[2]
    expected = 4 * 5000 / 50
    assert abs(sum(map(len, schedules[0])) - expected) < 4 * expected**0.5
    assert Drain(None, 7).due(4) == []


def test_threads_share_one_residual_and_its_thresholds_without_harm():
    """What is sent has a form that a server takes, whoever else writes meanwhile."""
    shared = (DCTDP(lifespan=3), Residual())
    every = [gradient(Drain(10.0, seed), shared=shared) for seed in range(3)]
    wrong: list[int] = []

    def work(thread: int) -> None:
        for step in range(thread, 90, 3):
            found = compressed(every[thread], step, drawn(step))
            values, index = entries(found)
            good = bool((index.diff() > 0).all() and values.isfinite().all())
            wrong.extend([] if good else [step])

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))  # raises what one of them did
    assert wrong == []
    one, other = (each.residuals() for each in (every[0], every[2]))
    assert all(one[name].data_ptr() == other[name].data_ptr() for name in SHAPES)
    assert residual(every[0]).isfinite().all()
