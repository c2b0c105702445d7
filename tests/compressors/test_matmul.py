"""Products of a matrix with thin factors: those of float64, of any shape and rank, either way."""

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors import kernels
from compressors.matmul import left_factor_, multiply_, right_factor_, subtract_
from tests.compressors.reductions import gradient

SHAPES = ((1, 1), (3, 17), (4, 16), (5, 15), (7, 64), (130, 1), (9, 8200), (66, 35))
LARGE = ((77, 1801), (1, 140_001), (70_000, 2), (1100, 1025))  # written past the cache
RANKS = (1, 3, 4, 8, 9)


@pytest.fixture(params=["compiled", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    else:
        assert kernels.compiled() is not None, kernels.path()
    return request.param


def draw(n: int, m: int, seed: int) -> Tensor:
    return gradient(n * m, seed).view(n, m)


def close(found: Tensor, expected: np.ndarray, scale: np.ndarray) -> None:
    """Up to the rounding of a sum whose terms have the magnitudes `scale` in total."""
    error = np.abs(found.double().numpy() - expected)
    assert (error <= 1e-6 * scale + 1e-30).all()


def wide(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.double().numpy() for tensor in tensors]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("adds", [False, True])
def test_factors_are_those_of_float64(way, shape, rank, adds):
    n, m = shape
    known, grad = draw(n, m, 1), draw(n, m, 2) if adds else None
    total = known if grad is None else known + grad
    left, right = draw(rank, n, 3), draw(rank, m, 4)
    x, p, q = wide(total, left, right)
    spent = known.clone()
    close(left_factor_(spent, right, grad), q @ x.T, abs(q) @ abs(x.T))
    assert torch.equal(spent, total)
    spent = known.clone()
    close(right_factor_(spent, left, grad), p @ x, abs(p) @ abs(x))
    assert torch.equal(spent, total)
    spent = known.clone()
    found = left_factor_(spent, right, grad, subtract=True)
    (own,) = wide(found)
    close(spent, x - own.T @ q, abs(x) + abs(own.T) @ abs(q))


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("shape", SHAPES + LARGE)
def test_a_product_is_that_of_float64(way: str, shape: tuple[int, int], rank: int) -> None:
    n, m = shape
    matrix, left, right = draw(n, m, 1), draw(rank, n, 2), draw(rank, m, 3)
    x, p, q = wide(matrix, left, right)
    scale = abs(p.T) @ abs(q)
    out, lost = torch.full_like(matrix, torch.nan), matrix.clone()
    multiply_(out, left, right)
    close(out, p.T @ q, scale)
    again = torch.full_like(matrix, torch.nan)
    multiply_(again, left, right, lost)
    assert torch.equal(again, out) and torch.equal(lost, matrix - out)
    lost = matrix.clone()
    subtract_(lost, left, right)
    close(lost, x - p.T @ q, abs(x) + scale)


def test_where_a_product_lies_does_not_change_its_bits():
    (n, m), most = (150, 1001), 8  # floats between two places of one alignment
    left, right, room = draw(4, n, 1), draw(4, m, 2), torch.empty(n * m + most)
    products = []
    for ahead in range(most):
        out = room[ahead : ahead + n * m].view(n, m)
        multiply_(out, left, right)
        products.append(out.clone())
    assert all(torch.equal(product, products[0]) for product in products)


def test_what_is_not_finite_stays_so(way: str) -> None:
    matrix = draw(9, 40, 0)
    matrix[5, 33] = torch.nan
    left, right = left_factor_(matrix, draw(4, 40, 1)), right_factor_(matrix, draw(4, 9, 2))
    assert left[:, 5].isnan().all() and left.isnan().sum() == 4
    assert right[:, 33].isnan().all() and right.isnan().sum() == 4


def test_the_memory_it_lies_in_does_not_matter(way: str) -> None:
    """Buckets of workers begin anywhere; their results must have equal bits."""
    n, m, rank = 37, 83, 4
    results = []
    for start in (0, 1, 3, 7):
        matrix = torch.empty(start + n * m)[start:].view(n, m).copy_(draw(n, m, 1))
        out = torch.empty(start + n * m)[start:].view(n, m)
        left = left_factor_(matrix, draw(rank, m, 2))
        right = right_factor_(matrix, left)
        multiply_(out, left, right, matrix)
        results.append([part.flatten().tolist() for part in (left, right, out, matrix)])
    assert all(result == results[0] for result in results)
