"""Error feedback, over any buckets, and the norms that a controller asks for."""

from math import fsum, inf, isfinite, isnan, nan, sqrt

import pytest
import torch

from compressors import kernels
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.stats import Norms, SquaredNorms, square
from tests.compressors.reductions import gradient


def test_residual_adds_what_was_not_sent():
    residual = Residual()
    grad = torch.tensor([1.0, -2.0, 3.0])
    assert residual.recall(("w",), [3], grad).add_(grad).tolist() == [1, -2, 3]
    residual.keep(("w",), torch.tensor([1.0, 0.0, 0.0]))
    assert residual.recall(("w",), [3], grad).add_(grad).tolist() == [2, -2, 3]
    residual.keep(("w",), None)
    assert residual.recall(("w",), [3], grad).add_(grad).tolist() == grad.tolist()
    assert grad.tolist() == [1, -2, 3]


def test_residual_follows_parameters_through_a_new_bucket_layout():
    residual = Residual()
    residual.recall(("a", "b", "c"), [2, 1, 2], torch.zeros(5))
    residual.keep(("a", "b", "c"), torch.arange(1.0, 6.0))
    moved = residual.recall(("c", "a"), [2, 2], torch.zeros(4))
    assert moved.tolist() == [4, 5, 1, 2]
    left = residual.recall(("b",), [1], torch.zeros(1))
    assert left.tolist() == [3]
    kept = {name: part.tolist() for name, part in residual.by_parameter().items()}
    assert kept == {"c": [4, 5], "a": [1, 2], "b": [3]}


def test_without_feedback_the_gradient_passes_as_it_is():
    grad = torch.randn(4)
    assert NoFeedback().recall(("w",), [4], grad) is None
    NoFeedback().keep(("w",), torch.ones(4))
    assert NoFeedback().recall(("w",), [4], grad) is None


def test_decay_fades_what_waits():
    """Nothing of gradients of 4 is ever sent: what is added is the sum of decay^age 4."""
    residual = Residual(0.5)
    for expected in (0.0, 2.0, 3.0, 3.5):
        added = residual.recall(("w",), [1], torch.zeros(1))
        assert added.item() == expected
        residual.keep(("w",), added + 4)


def test_decay_counts_once_at_a_new_bucket_layout():
    residual = Residual(0.5)
    residual.recall(("a", "b"), [1, 1], torch.zeros(2))
    residual.keep(("a", "b"), torch.tensor([8.0, 16.0]))
    assert residual.recall(("b",), [1], torch.zeros(1)).tolist() == [8]
    assert residual.recall(("a",), [1], torch.zeros(1)).tolist() == [4]


def test_without_decay_the_residual_is_what_was_kept_to_the_bit():
    kept = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    residual = Residual()
    residual.recall(("w",), [1000], kept)
    residual.keep(("w",), kept)
    assert torch.equal(residual.recall(("w",), [1000], kept), kept)


@pytest.mark.parametrize("decay", [-0.1, 1.1, float("nan")])
def test_a_decay_that_cannot_be_is_refused(decay):
    with pytest.raises(ValueError, match=r"residual_decay must be in \[0, 1\]"):
        Residual(decay)


@pytest.fixture(params=["compiled", "plain"])
def code(request, monkeypatch):
    """With the kernels of this machine, where it has any, and without."""
    if request.param == "plain":
        monkeypatch.setattr(kernels, "of", lambda x: None)


@pytest.mark.parametrize("n", [0, 1, 7, 4096, 100_001])
def test_a_sum_of_squares_is_exact_to_float64(code, n):
    x = gradient(n, 1)
    assert square(x) == pytest.approx(fsum(value * value for value in x.tolist()), rel=1e-12)


def test_a_sum_of_squares_is_finite_exactly_where_every_element_is(code):
    largest = torch.full((1000,), 3e38)
    assert square(largest) == pytest.approx(1000 * float(largest[0]) ** 2, rel=1e-12)
    for bad in (nan, inf, -inf):
        assert not isfinite(square(largest.index_fill(0, torch.tensor([999]), bad)))


def test_norms_follow_their_definitions():
    g, e, sent = 9.0, 16.0, 15.0
    norms = SquaredNorms(gradient=g, residual=e, compensated=20.0, unsent=20.0 - sent).norms()
    assert norms == (sqrt(g), sqrt(e), sent / g, sent / 20.0)


def test_of_nothing_all_is_sent_and_the_rest_may_be_beyond_measure():
    assert SquaredNorms().norms() == (0, 0, 1, 1)
    assert SquaredNorms(residual=4.0, compensated=4.0).norms() == (0, 2, inf, 1)
    assert SquaredNorms(gradient=1.0, compensated=1.0, unsent=1.5).norms() == (1, 0, 0, 0)


def test_norms_that_nobody_asked_for_are_nan():
    assert all(isnan(value) for value in Norms())
