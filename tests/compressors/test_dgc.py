"""Deep gradient compression against its recurrences in float64, and momentum SGD as its limit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from compressors.dgc import DGC
from compressors.sampled_topk import SampledTopK
from compressors.topk_select import Entries
from tests.compressors.reductions import Outcome, Replica, Shapes, gradient
from tests.compressors.threads import ThreadWorkers, together

SHAPES: Shapes = {"weight": (20, 30), "bias": (7,)}
N, MATRIX = 607, 600
STEPS = 8


def train(size: int, make: Callable[[], DGC], density: float) -> list[tuple[DGC, list[Outcome]]]:
    def work(workers: ThreadWorkers) -> tuple[DGC, list[Outcome]]:
        replica = Replica(workers, make())
        grads = [gradient(N, 100 * workers.rank + step) for step in range(STEPS)]
        return replica.compressor, [
            replica.reduce(grad, density, step, of=SHAPES) for step, grad in enumerate(grads)
        ]

    return together(size, work)


@pytest.mark.parametrize("clip_norm", [None, 20.0])
@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_several_steps_are_those_of_float64(size, nesterov, masking, clip_norm):
    """What is selected is taken from the compressor: entries of v that are zero afterwards."""
    sent: list[list[np.ndarray]] = [[] for _ in range(size)]

    class Seen(SampledTopK):
        """Notes the positions it chose."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

        def take(self, *given: Any) -> Entries:
            found = super().take(*given)
            sent[self.rank].append(found.index.numpy().copy())
            return found

    def work(workers: ThreadWorkers) -> list[Outcome]:
        compressor = DGC(0.9, nesterov, masking, clip_norm, Seen(workers.rank))
        replica = Replica(workers, compressor)
        grads = [gradient(N, 100 * workers.rank + step) for step in range(STEPS)]
        return [replica.reduce(grad, 0.1, step, of=SHAPES) for step, grad in enumerate(grads)]

    outcomes = together(size, work)
    u, v = np.zeros((size, MATRIX)), np.zeros((size, MATRIX))
    bias_u = np.zeros(7)

    def momentum(u: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if nesterov:
            u = 0.9 * (u + g)
            return u, u + g
        u = 0.9 * u + g
        return u, u

    for step in range(STEPS):
        total, bias = np.zeros(MATRIX), np.zeros(7)
        for rank in range(size):
            g = gradient(N, 100 * rank + step).double().numpy()
            if clip_norm is not None:
                g *= min(1.0, clip_norm / size**0.5 / np.linalg.norm(g))
            u[rank], delta = momentum(u[rank], g[:MATRIX])
            v[rank] += delta
            where = sent[rank][step]
            assert np.abs(v[rank][where]).min() >= np.median(np.abs(v[rank]))
            assert 42 <= where.size <= 78
            total[where] += v[rank][where] / size
            v[rank][where] = 0
            if masking:
                u[rank][where] = 0
            bias += g[MATRIX:] / size
            assert outcomes[rank][step].contributed_bytes == 8 * where.size + 4 * 7
        bias_u, bias_step = momentum(bias_u, bias)
        for rank in range(size):
            reduced = outcomes[rank][step].reduced
            mean = np.concatenate([total, bias_step])
            np.testing.assert_allclose(reduced.mean, mean, rtol=0, atol=1e-3)
            assert reduced.unsent is None


@pytest.mark.parametrize(("masking", "density"), [(False, 0.1), (False, 1.0), (True, 1.0)])
@pytest.mark.parametrize("nesterov", [True, False])
def test_without_masking_or_at_density_1_it_is_momentum_sgd_late(nesterov, masking, density):
    """What was sent and what v still holds are the steps of torch's optimizer."""
    weight = torch.nn.Parameter(torch.zeros(N))
    sgd = torch.optim.SGD([weight], lr=1.0, momentum=0.9, nesterov=nesterov)
    ((compressor, outcomes),) = train(1, lambda: DGC(0.9, nesterov, masking), density)
    total = torch.zeros(N)
    for step, outcome in enumerate(outcomes):
        weight.grad = gradient(N, step)
        sgd.step()
        total -= outcome.reduced.mean
    total[:MATRIX] -= compressor.sums["weight"]
    torch.testing.assert_close(total, weight.data, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("size", [1, 3])
def test_nothing_is_lost(size: int) -> None:
    """Without momentum, what was sent and what v holds are all gradients."""
    results = train(size, lambda: DGC(0.0), 0.05)
    given = sum(gradient(N, 100 * rank + step) for rank in range(size) for step in range(STEPS))
    got = sum(outcome.reduced.mean for outcome in results[0][1])
    held = torch.zeros(N)
    for compressor, _ in results:
        held[:MATRIX] += compressor.sums["weight"]
    torch.testing.assert_close(got * size + held, given, rtol=0, atol=1e-3)


def test_state_is_by_parameter_and_vectors_have_no_sum() -> None:
    for compressor, _ in train(2, DGC, 0.1):
        assert set(compressor.velocities) == {"weight", "bias"}
        assert set(compressor.sums) == {"weight"}


def test_a_bucket_of_vectors_only_is_dense() -> None:
    def work(workers: ThreadWorkers) -> Outcome:
        return Replica(workers, DGC()).reduce(gradient(9, workers.rank), 0.1, of={"v": (9,)})

    for outcome in together(2, work):
        assert outcome.contributed_bytes == 4 * 9
        mean = (gradient(9, 0) + gradient(9, 1)) / 2
        torch.testing.assert_close(outcome.reduced.mean, mean)
