"""Thresholds from a fit, sketches and error feedback of gradients, each against its formula."""

import pytest
import torch

from compressors.activations.dct_mp import DCTMP
from compressors.activations.sketch import GaussianSketch
from compressors.activations.topk_grad import TopKGrad
from tests.activations.schemes import rectified


def laplace(rows: int, d: int, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.distributions.Laplace(0.1, 0.5).sample((rows, d))


@pytest.mark.parametrize("density", [0.05, 0.1, 0.25])
def test_a_fit_of_what_is_laplace_keeps_the_density(density: float) -> None:
    mask = DCTMP(density, "laplace").mask(laplace(400, 256), True)
    assert float(mask.float().mean()) == pytest.approx(density, rel=0.05)


def test_evaluation_uses_the_average_of_the_thresholds_of_training() -> None:
    scheme = DCTMP(0.25, "laplace", memory=0.5)
    thresholds = []
    for seed in range(4):
        x = laplace(50, 64, seed) * (seed + 1)
        fresh = DCTMP(0.25, "laplace")
        scheme.mask(x, True), fresh.mask(x, True)
        thresholds.append(fresh.average)
    average = thresholds[0]
    for tau in thresholds[1:]:
        average = 0.5 * average + 0.5 * tau
    assert scheme.average == pytest.approx(average)
    x = laplace(50, 64, 9)
    assert torch.equal(scheme.mask(x, False), x.abs() >= average)
    assert scheme.average == pytest.approx(average)  # evaluation teaches nothing
    untrained = DCTMP(0.25, "laplace")
    assert torch.equal(untrained.mask(x, False), untrained.mask(x, True))


def test_a_sketch_is_unbiased_and_its_backward_its_derivative() -> None:
    """Over the draws of one scheme."""
    x, scheme = laplace(3, 20), GaussianSketch(0.5, 1)
    mean = sum(_through(scheme, x) for _ in range(600)) / 600
    assert torch.allclose(mean, x, atol=0.25)
    piece, kept = scheme.forward(torch.eye(20), True)
    jacobian, _ = scheme.received(piece, (20, 20), True)
    g = laplace(3, 20, 5)
    back = scheme.returned(scheme.backward(g, None), kept, (3, 20))
    assert torch.allclose(back, g @ jacobian.T, atol=1e-5)


def _through(scheme: GaussianSketch, x: torch.Tensor, training: bool = True) -> torch.Tensor:
    piece, _ = scheme.forward(x, training)
    return scheme.received(piece, (x.shape[0], x.shape[1]), training)[0]


def test_a_fresh_sketch_is_another_for_every_batch_and_evaluations_change_none_of_training():
    x = torch.eye(20)
    often, never = GaussianSketch(0.5, 1), GaussianSketch(0.5, 1)
    trained, evaluated = [], []
    for number in range(3):
        trained.append(_through(often, x))
        assert torch.equal(trained[-1], _through(never, x))
        evaluated += [_through(often, x, training=False) for _ in range(number)]
    different = [*trained, *evaluated]
    assert len({tuple(each.flatten().tolist()) for each in different}) == len(different) == 6
    assert torch.equal(_through(never, x, training=False), evaluated[1])


def test_a_sketch_that_is_drawn_once_is_the_same_for_all() -> None:
    x, once = torch.eye(20), GaussianSketch(0.5, 1, fresh=False)
    first = _through(once, x)
    assert torch.equal(first, _through(once, x)) and torch.equal(first, _through(once, x, False))
    assert not torch.equal(first, _through(GaussianSketch(0.5, 2, fresh=False), x))


@pytest.mark.parametrize("feedback", [True, False])
def test_what_a_gradient_leaves_is_added_to_the_next(feedback: bool) -> None:
    scheme, error = TopKGrad(0.3, feedback), torch.zeros(4, 20)
    for seed in range(5):
        grad = torch.randn(4, 20, generator=torch.Generator().manual_seed(seed))
        total = grad + error
        piece = scheme.backward(grad, None)
        sent = scheme.returned(piece, None, (4, 20))
        kept = total.abs() >= total.abs().sort(1).values[:, 14:15]
        assert torch.equal(sent, total * kept) and kept.sum(1).tolist() == [6] * 4
        if feedback:
            error = total - sent
    other = scheme.backward(rectified(2, 20, 1), None)  # a shorter micro-batch: rows do not match
    assert other.mask is not None and other.mask.shape == (2, 20)
