"""Multi-sampling top-k: exactly k, the largest of them, and a run of those that are equal."""

import numpy as np
import pytest
import torch

from compressors.mstopk import MSTopK
from tests.compressors.reductions import KINDS, bits, gradient, run


def sent(grad: torch.Tensor, unsent: torch.Tensor) -> np.ndarray:
    """Positions that were sent, unless the entry was zero."""
    return np.flatnonzero(bits(grad) != bits(unsent))


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 2, 7, 20_000])
def test_it_is_the_top_k(n: int, density: float) -> None:
    k = max(1, int(density * n))
    for grad, (_, unsent), contributed in run(MSTopK, [gradient(n, 0), gradient(n, 1)], density):
        want = np.sort(np.argsort(-np.abs(grad.numpy()), kind="stable")[:k])
        np.testing.assert_array_equal(sent(grad, unsent), want)
        assert contributed == 8 * k


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [0, 1, 3, 30])
def test_k_entries_whatever_the_gradient_and_the_rounds(kind: str, rounds: int) -> None:
    grad = KINDS[kind](2)
    for density in (0.001, 0.2, 0.9):
        k = int(density * grad.numel())
        ((_, (_, unsent), contributed),) = run(lambda: MSTopK(rounds), [grad], density)
        assert contributed == 8 * k
        assert sent(grad, unsent).size <= k
        if grad.all():
            assert sent(grad, unsent).size == k


def test_of_equal_entries_a_run_is_sent_and_its_start_is_random() -> None:
    grad = torch.ones(1000)
    starts = set()
    for seed in range(5):
        ((_, (_, unsent), _),) = run(lambda seed=seed: MSTopK(seed=seed), [grad], 0.1)
        where = sent(grad, unsent)
        assert where.size == 100 and where[-1] - where[0] == 99
        starts.add(where[0])
    assert len(starts) > 1


def test_larger_entries_come_before_the_run() -> None:
    grad = torch.ones(1000)
    grad[[3, 500, 999]] = torch.tensor([-2.0, 7.0, 2.0])
    ((_, (_, unsent), _),) = run(MSTopK, [grad], 0.01)
    assert unsent[[3, 500, 999]].tolist() == [0.0] * 3


def test_negative_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds must be >= 0, got -1"):
        MSTopK(-1)
