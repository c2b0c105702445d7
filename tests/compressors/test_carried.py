"""Carried-over thresholds: their recurrence in float64, when they are sampled, and capacity."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.buffers import Buffers
from compressors.carried_topk import CarriedTopK
from harness.engine.exchange.feedback import NoFeedback, Residual
from tests.compressors.reductions import Outcome, Replica, gradient
from tests.compressors.threads import ThreadWorkers, together

DRAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda source, n: source.normal(0, 1, n),
    "laplace": lambda source, n: source.laplace(0, 1, n),
    "student": lambda source, n: source.standard_t(3, n),
}


def drawn(kind: str, n: int, seed: int) -> Tensor:
    return torch.from_numpy(DRAWS[kind](np.random.default_rng(seed), n)).float()


class Counting(CarriedTopK):
    """Notes the steps at which it samples."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.sampled: list[int] = []

    def _sampled(self, buffers: Buffers, share: float, key: Any) -> Tensor:
        self.sampled.append(key[0])
        return super()._sampled(buffers, share, key)


def train(
    grads: list[Tensor], density: float | list[float], feedback: bool = False, **fields: Any
) -> tuple[Counting, list[Outcome], list[float]]:
    """One worker: its compressor, outcomes, and thresholds by step."""
    densities = density if isinstance(density, list) else [density] * len(grads)

    def work(workers: ThreadWorkers) -> tuple[Counting, list[Outcome], list[float]]:
        compressor = Counting(**fields)
        replica = Replica(workers, compressor, Residual() if feedback else NoFeedback())
        outcomes, thresholds = [], []
        for step, grad in enumerate(grads):
            of = {"w": (grad.numel(),)}
            outcomes.append(replica.reduce(grad, densities[step], step, of=of))
            thresholds.append(compressor.thresholds[("w",)].value)
        return compressor, outcomes, thresholds

    return together(1, work)[0]


def counts(outcomes: list[Outcome]) -> list[int]:
    return [one.contributed_bytes // 8 for one in outcomes]


@pytest.mark.parametrize("jump", [1.0, 7.0, 0.02])
@pytest.mark.parametrize("density", [0.01, 0.2])
def test_steps_are_those_of_float64(density: float, jump: float) -> None:
    """A threshold that was sampled is taken from the compressor; gradients jump at the fifth."""
    n, steps = 20_000, 10
    grads = [gradient(n, step) * (jump if step >= 5 else 1) for step in range(steps)]
    compressor, outcomes, thresholds = train(grads, density, feedback=True)
    k = int(density * n)
    error, threshold, reached = np.zeros(n), 0.0, 0
    for step in range(steps):
        a = np.abs(grads[step].double().numpy() + error)
        if step in compressor.sampled:
            if step:
                moved = threshold * np.sqrt(np.log(n / k) / np.log(n / reached))
                assert not 0.5 * k <= (a >= moved).sum() <= 2 * k
            threshold = thresholds[step]
        else:
            threshold *= np.sqrt(np.log(n / k) / np.log(n / reached))
            assert thresholds[step] == pytest.approx(threshold, rel=1e-5)
        mask = a >= thresholds[step] * (1 - 1e-7)
        reached = mask.sum()
        assert 0.5 * k <= reached <= 2 * k
        mask &= a >= np.sort(a)[-int(1.25 * k)]
        signed = grads[step].double().numpy() + error
        error = np.where(mask, 0, signed)
        assert outcomes[step].contributed_bytes == 8 * mask.sum()
        np.testing.assert_allclose(outcomes[step].reduced.mean, signed - error, atol=1e-4)
        np.testing.assert_allclose(outcomes[step].reduced.unsent, error, atol=1e-4)
    assert compressor.sampled[0] == 0
    assert any(step >= 5 for step in compressor.sampled) == (jump != 1)


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("kind", DRAWS)
def test_a_steady_gradient_is_sampled_once_and_k_entries_pass(kind: str, density: float) -> None:
    n = 100_000
    compressor, outcomes, _ = train([drawn(kind, n, step) for step in range(12)], density)
    assert compressor.sampled == [0]
    k = density * n
    assert np.mean(counts(outcomes)[4:]) == pytest.approx(k, rel=0.05 + 2 / k**0.5)


def test_with_feedback_the_threshold_follows_the_growing_residual() -> None:
    n, density = 50_000, 0.01
    compressor, outcomes, thresholds = train(
        [drawn("normal", n, step) for step in range(60)], density, feedback=True
    )
    assert compressor.sampled[0] == 0 and len(compressor.sampled) <= 6
    assert thresholds[-1] > 1.5 * thresholds[0]
    assert np.mean(counts(outcomes)[30:]) == pytest.approx(density * n, rel=0.1)


def test_a_new_density_is_followed_without_a_sample() -> None:
    n = 50_000
    densities = [0.01] * 3 + [0.012] * 3 + [0.02] * 5 + [0.015] * 5
    compressor, outcomes, _ = train(
        [drawn("laplace", n, step) for step in range(len(densities))], densities
    )
    assert compressor.sampled == [0]
    for last, density in ((5, 0.012), (10, 0.02), (15, 0.015)):
        assert counts(outcomes)[last] == pytest.approx(density * n, rel=0.15)


@pytest.mark.parametrize("factor", [0.0, 1e-6, 0.4, 1.5, 1e6])
def test_no_more_than_the_capacity_is_sent_and_what_is_left_is_smaller(factor: float) -> None:
    n, k = 10_000, 100
    grads = [drawn("normal", n, 0), drawn("normal", n, 1) * factor, torch.full((n,), 0.25)]
    _, outcomes, _ = train(grads, 0.01, capacity=1.1)
    for one in outcomes:
        assert one.contributed_bytes <= 8 * 110
        sent = one.grad[one.reduced.unsent == 0].abs()
        left = one.reduced.unsent.abs().max()
        assert sent.numel() == n or sent.min() >= left
    assert counts(outcomes)[1] >= (50 if factor else 0)
    assert counts(outcomes)[2] == int(1.1 * k)


def test_zeros_are_not_sent_and_forgotten_thereafter() -> None:
    few = torch.zeros(1000).index_fill_(0, torch.tensor([3, 5]), 1.0)
    grads = [torch.zeros(1000), few, few, gradient(1000, 1), gradient(1000, 1)]
    _, outcomes, _ = train(grads, 0.1)
    assert counts(outcomes)[:3] == [0, 2, 2]
    assert all(50 <= count <= 125 for count in counts(outcomes)[3:])


def test_a_density_of_one_sends_all_and_a_smaller_one_thereafter_does_not() -> None:
    _, outcomes, _ = train([gradient(1000, step) for step in range(4)], [0.1, 1.0, 1.0, 0.1])
    assert counts(outcomes)[1:3] == [1000, 1000]
    assert 50 <= counts(outcomes)[3] <= 125


def test_a_new_layout_forgets_the_thresholds_of_old_buckets() -> None:
    def work(workers: ThreadWorkers) -> list[tuple[str, ...]]:
        replica = Replica(workers, CarriedTopK())
        replica.reduce(gradient(20, workers.rank), 0.5, 0, of={"a": (10,), "b": (10,)})
        replica.reduce(gradient(10, workers.rank), 0.5, 1, of={"b": (10,)})
        return list(replica.compressor.thresholds)

    assert together(2, work) == [[("b",)]] * 2
