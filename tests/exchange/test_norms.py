"""Norms that a controller asks for, from their definitions."""

from math import fsum, inf, isfinite, isnan, nan, sqrt

import pytest
import torch

from compressors import kernels
from harness.engine.exchange.stats import Norms, SquaredNorms, square
from tests.compressors.reductions import gradient


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
