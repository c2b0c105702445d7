"""Moments of many elements, against float64."""

import pytest

from compressors.reductions import ROW, mean, mean_magnitude, mean_square
from tests.compressors.reductions import gradient


@pytest.mark.parametrize("n", [1, 7, ROW - 1, ROW, ROW + 1, 3_000_001])
def test_they_are_those_of_float64(n: int) -> None:
    x = gradient(n, 1) + 0.1
    exact = x.double()
    assert mean(x) == pytest.approx(float(exact.mean()), rel=1e-5, abs=1e-6)
    assert mean_square(x) == pytest.approx(float(exact.square().mean()), rel=2e-6)
    assert mean_magnitude(x) == pytest.approx(float(exact.abs().mean()), rel=2e-6)
