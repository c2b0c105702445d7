"""What a thread pushes: nothing is lost but what is drained; and that is drawn, and counted."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from compressors.dct_dp import DCTDP
from compressors.dense import Dense
from controllers.fixed import Fixed
from harness.exchange.feedback import Forget, Residual
from harness.exchange.reduction import Reduction
from harness.parameter_server.gradient import Captured, Drain, Gradient

SHAPES = [torch.Size([40, 50]), torch.Size([50]), torch.Size([3000])]
N = sum(shape.numel() for shape in SHAPES)


def gradient(
    drain: Drain | None = None, density: float = 0.05, shared: tuple | None = None
) -> Gradient:
    compressor, feedback = shared or (DCTDP(lifespan=5), Residual())
    captured = Captured()
    reduction = Reduction(compressor, Fixed(density), "local", feedback, captured)
    return Gradient(reduction, captured, drain or Drain(None, False, 0), ("a", "b", "c"), SHAPES)


def drawn(step: int) -> torch.Tensor:
    return torch.randn(N, generator=torch.Generator().manual_seed(step))


def sent(found) -> torch.Tensor:
    return torch.zeros(N).index_add_(0, found.index, found.values)


def test_what_is_pushed_and_what_is_kept_make_up_all_gradients():
    tried, total, pushed = gradient(), torch.zeros(N), torch.zeros(N)
    for step in range(12):
        total += drawn(step)
        found = tried.compress(step, drawn(step))
        assert (found.index.diff() > 0).all() and found.index.dtype == torch.int32
        pushed += sent(found)
    torch.testing.assert_close(pushed + tried.residual(pushed), total)
    assert 0.02 * N <= found.values.numel() < 0.5 * N


def test_a_dense_gradient_is_pushed_as_it_is():
    captured = Captured()
    reduction = Reduction(Dense(), Fixed(1.0), "local", Forget(), captured)
    tried = Gradient(reduction, captured, Drain(None, False, 0), ("a", "b", "c"), SHAPES)
    found = tried.compress(0, drawn(0))
    assert found.index is None and torch.equal(found.values, drawn(0))


def test_a_gradient_that_is_not_finite_is_not_pushed():
    bad = drawn(0).index_fill_(0, torch.tensor([2020]), torch.nan)
    with pytest.raises(FloatingPointError, match="the gradient of b has 1 of 50 elements"):
        gradient().compress(0, bad)


def test_a_drain_to_zero_forgets_the_layer_and_no_other():
    tried = gradient(Drain(1.0, False, 0))
    found = tried.compress(0, drawn(0))
    assert found.drained == [0, 1, 2]
    assert not tried.residual(drawn(0)).any()


def test_a_drain_that_flushes_sends_the_layer():
    tried, total, pushed = gradient(Drain(3.0, True, 0)), torch.zeros(N), torch.zeros(N)
    drained = 0
    for step in range(12):
        total += drawn(step)
        found = tried.compress(step, drawn(step))
        assert (found.index.diff() > 0).all()
        pushed += sent(found)
        for layer in found.drained:
            drained += 1
            parts = tried.residual(pushed).split([shape.numel() for shape in SHAPES])
            assert not parts[layer].any()
    assert drained > 3
    torch.testing.assert_close(pushed + tried.residual(pushed), total)


def test_drains_are_drawn_by_seed_as_often_as_expected():
    one, again, other = Drain(50.0, False, 7), Drain(50.0, False, 7), Drain(50.0, False, 8)
    schedules = [[drain.due(4) for _ in range(5000)] for drain in (one, again, other)]
    assert schedules[0] == schedules[1] != schedules[2]
    expected = 4 * 5000 / 50
    assert abs(sum(map(len, schedules[0])) - expected) < 4 * expected**0.5
    assert Drain(None, False, 7).due(4) == []


def test_threads_share_one_residual_and_its_thresholds_without_harm():
    """What is sent has a form that a server takes, whoever else writes meanwhile."""
    shared = (DCTDP(lifespan=3), Residual())
    every = [gradient(Drain(10.0, True, seed), shared=shared) for seed in range(3)]
    every[0].residual(drawn(0))
    wrong: list[int] = []

    def work(thread: int) -> None:
        for step in range(thread, 90, 3):
            found = every[thread].compress(step, drawn(step))
            good = bool((found.index.diff() > 0).all() and found.values.isfinite().all())
            wrong.extend([] if good else [step])

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))  # raises what one of them did
    assert wrong == []
    assert every[0].residual(drawn(0)).data_ptr() == every[2].residual(drawn(0)).data_ptr()
    assert every[0].residual(drawn(0)).isfinite().all()
