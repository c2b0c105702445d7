"""Ok-Topk: the top k of the sum, regions that are even, thresholds that are kept, and its bytes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch

from compressors.oktopk import OkTopK
from harness.engine.exchange.feedback import NoFeedback, Residual
from tests.compressors.reductions import Outcome, Replica, gradient
from tests.compressors.threads import ThreadWorkers, together

STEPS = 11


class Seen(NamedTuple):
    """One step of a worker."""

    outcome: Outcome
    reduced_bytes: int
    gathered_bytes: int
    routed_bytes: int


def train(
    size: int, n: int, density: float, make: Callable[[], OkTopK], feedback: bool = True
) -> list[list[Seen]]:
    def work(workers: ThreadWorkers) -> list[Seen]:
        replica = Replica(workers, make(), Residual() if feedback else NoFeedback())
        seen, before = [], (0, 0, 0)
        for step in range(STEPS):
            grad = gradient(n, 100 * workers.rank + step)
            outcome = replica.reduce(grad, density, step)
            now = (workers.reduced_bytes, workers.gathered_bytes, workers.routed_bytes)
            seen.append(Seen(outcome, *(a - b for a, b in zip(now, before, strict=True))))
            before = now
        return seen

    return together(size, work)


def kth(x: np.ndarray, k: int) -> float:
    return float(np.sort(np.abs(x))[-min(k, x.size)])


def follow(threshold: float, count: int, k: int, gain: float) -> float:
    return threshold * gain if count > k else threshold / gain if count < k else threshold


@pytest.mark.parametrize("gain", [1.0, 1.1])
@pytest.mark.parametrize("density", [0.01, 0.1])
@pytest.mark.parametrize(("size", "n"), [(1, 500), (2, 1000), (3, 3001), (4, 1000)])
def test_several_steps_are_those_of_float64(size: int, n: int, density: float, gain: float) -> None:
    period, division = 3, 5
    seen = train(size, n, density, lambda: OkTopK(period, division, gain, gain))
    k = int(density * n)
    errors, local, everywhere = np.zeros((size, n)), [0.0] * size, 0.0
    margin = 1 - 1e-6  # thresholds are float32
    for step in range(STEPS):
        grads = [
            gradient(n, 100 * rank + step).double().numpy() + errors[rank] for rank in range(size)
        ]
        if step % period == 0:
            local = [kth(grad, k) for grad in grads]
        masks = [np.abs(grad) >= th * margin for grad, th in zip(grads, local, strict=True)]
        local = [follow(th, m.sum(), k, gain) for th, m in zip(local, masks, strict=True)]
        mean = sum(grad * mask for grad, mask in zip(grads, masks, strict=True)) / size
        candidates = np.count_nonzero(mean)
        if step % period == 0:
            everywhere = kth(mean[mean != 0], k)
        chosen = (np.abs(mean) >= everywhere * margin) & (mean != 0)
        everywhere = follow(everywhere, chosen.sum(), k, gain)
        gathered = candidates if step % period == 0 else chosen.sum()
        assert sum(one[step].gathered_bytes for one in seen) == 8 * gathered
        for rank in range(size):
            errors[rank] = grads[rank] * ~(masks[rank] & chosen)
            reduced = seen[rank][step].outcome.reduced
            np.testing.assert_allclose(reduced.mean, mean * chosen, rtol=0, atol=1e-3)
            np.testing.assert_allclose(reduced.unsent, errors[rank], rtol=0, atol=1e-3)
            assert seen[rank][step].reduced_bytes == (8 * (size + 1) if step % division == 0 else 0)


def test_alike_workers_get_the_exact_top_k() -> None:
    grad = gradient(5000, 0)

    def work(workers: ThreadWorkers) -> Outcome:
        return Replica(workers, OkTopK()).reduce(grad, 0.02, 0)

    want = grad.clone()
    want[grad.abs().argsort(descending=True)[100:]] = 0
    for outcome in together(3, work):
        torch.testing.assert_close(outcome.reduced.mean, want)
        torch.testing.assert_close(outcome.reduced.unsent, grad - want)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_words_a_worker_stay_below_those_of_the_paper(size: int) -> None:
    """6 k (P - 1) / P sent, except where thresholds are computed; an all-gather has 2 k (P - 1)."""
    n, density = 40_000, 0.01
    k = int(density * n)
    seen = train(size, n, density, OkTopK, feedback=False)
    for step in range(1, STEPS):
        total = sum(one[step].gathered_bytes for one in seen)
        for rank in range(size):
            after = seen[(rank + 1) % size][step].gathered_bytes
            words = (seen[rank][step].routed_bytes + total - after) / 4
            assert 0 < words <= 6 * k * (size - 1) / size


def test_regions_divide_entries_evenly_where_they_are() -> None:
    """All large entries lie in the last tenth of the bucket."""
    n, size = 10_000, 4

    def work(workers: ThreadWorkers) -> tuple[list[int], int]:
        grad = gradient(n, workers.rank) * 1e-6
        grad[9000:] = gradient(1000, 50 + workers.rank)
        replica = Replica(workers, OkTopK())
        replica.reduce(grad, 0.02, 0)
        (state,) = replica.compressor.agreed.values()
        return state.bounds.tolist(), workers.routed_bytes

    results = together(size, work)
    bounds = results[0][0]
    assert all(found == bounds for found, _ in results)
    assert bounds[0] == 0 and bounds[-1] == n and bounds == sorted(bounds)
    assert bounds[1] > 9000
    for _, routed in results:
        assert routed / 8 == pytest.approx(200 * 3 / 4, rel=0.2)


def test_no_gradient_keeps_no_threshold() -> None:
    def work(workers: ThreadWorkers) -> list[int]:
        replica = Replica(workers, OkTopK())
        grads = [torch.zeros(1000), gradient(1000, 1), gradient(1000, 1)]
        means = [replica.reduce(grad, 0.01, step).reduced.mean for step, grad in enumerate(grads)]
        return [int(mean.count_nonzero()) for mean in means]

    assert together(3, work) == [[0, 10, 10]] * 3


def test_a_new_layout_starts_anew_and_forgets_the_old_one() -> None:
    def work(workers: ThreadWorkers) -> list[tuple[str, ...]]:
        replica = Replica(workers, OkTopK())
        replica.reduce(gradient(20, workers.rank), 0.5, 0, of={"a": (10,), "b": (10,)})
        replica.reduce(gradient(10, workers.rank), 0.5, 1, of={"b": (10,)})
        return list(replica.compressor.agreed)

    assert together(2, work) == [[("b",)]] * 2
