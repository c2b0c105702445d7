"""Thresholds, modelled, kept or searched, against float64, and how many entries they send."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
import torch

from compressors.dct_dp import DCTDP, by_sample, by_sort
from compressors.mstopk import MSTopK
from compressors.threshold_topk import ThresholdTopK
from compressors.topk_select import kept, reached_at
from harness.engine.exchange.feedback import Residual
from tests.compressors.reductions import KINDS, Outcome, Replica, Shapes, bits, gradient, run
from tests.compressors.threads import ThreadWorkers, together


def laplace(n: int, mean: float, scale: float) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(5).laplace(mean, scale, n)).float()


@pytest.mark.parametrize("model", ["laplace", "normal"])
@pytest.mark.parametrize("spread", ["variance", "magnitude"])
@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.5])
def test_of_a_gradient_of_its_model_the_density_passes(density, spread, model) -> None:
    normal = torch.from_numpy(np.random.default_rng(6).normal(0, 1e-4, 400_000)).float()
    grad = normal if model == "normal" else laplace(400_000, 0.0, 0.03)
    outcome = run(lambda: ThresholdTopK(model, spread), [grad], density)[0]
    assert outcome.contributed_bytes / 8 == pytest.approx(density * 400_000, rel=0.12)


@pytest.mark.parametrize("density", [0.001, 0.05, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("mean", [0.0, 0.01, -0.2, 3.0])
def test_the_threshold_solves_the_papers_equation(mean: float, density: float) -> None:
    grad = laplace(1001, mean, 0.5)
    exact = grad.double()
    mu, deviation = float(exact.mean()), float(exact.var(correction=0)) ** 0.5
    found = ThresholdTopK().threshold(grad, density)
    b = deviation / 2**0.5
    closed = b * math.log(math.cosh(mu / b) / density)
    if closed >= abs(mu):
        assert found == pytest.approx(closed, rel=1e-5)
    else:
        cdf = [math.exp(-abs(x - mu) / b) / 2 for x in (found, -found)]
        cdf = [c if x < mu else 1 - c for c, x in zip(cdf, (found, -found), strict=True)]
        assert 1 - cdf[0] + cdf[1] == pytest.approx(density, abs=1e-5)
    normal = NormalDist(mu, deviation)
    found = ThresholdTopK("normal").threshold(grad, density)
    assert 1 - normal.cdf(found) + normal.cdf(-found) == pytest.approx(density, abs=1e-5)


def test_capacity_bounds_what_is_sent_to_the_largest_of_it() -> None:
    grad = torch.zeros(1000)
    grad[:300] = torch.arange(1.0, 301.0) + 1000  # the threshold of 20 % is 741
    ((_, (_, unsent), contributed),) = run(lambda: ThresholdTopK(capacity=1.2), [grad], 0.2)
    assert contributed == 8 * 240
    assert torch.equal(unsent.nonzero().flatten(), torch.arange(60))


@pytest.mark.parametrize("n", [1, 7, 100, 256, 1000, 131_072, 25_000_000, 10**9])
@pytest.mark.parametrize("percent", [0.1, 0.5, 2, 5, 10, 25, 29, 71, 90, 100])
def test_no_entry_is_kept_or_left_out_for_rounding(n: int, percent: float) -> None:
    """Against whole numbers: the dropped are floor(n (1000 - permille) / 1000)."""
    permille = round(10 * percent)
    assert kept(n, percent / 100) == max(1, n - n * (1000 - permille) // 1000)


@pytest.mark.parametrize("grad", [torch.zeros(9), torch.tensor([1.0, -1.0] * 50), torch.ones(1)])
def test_at_least_one_entry_is_sent(grad: torch.Tensor) -> None:
    assert run(ThresholdTopK, [grad], 0.01)[0].contributed_bytes == 8


SHAPES: Shapes = {"weight": (20, 30), "bias": (7,), "scale": (1,)}
N = 608


def dct(size: int, steps: int, make: Callable[[], DCTDP], density: float) -> list[list[Outcome]]:
    def work(workers: ThreadWorkers) -> list[Outcome]:
        replica = Replica(workers, make(), Residual())
        grads = [gradient(N, 100 * workers.rank + step) for step in range(steps)]
        return [replica.reduce(grad, density, step, of=SHAPES) for step, grad in enumerate(grads)]

    return together(size, work)


@pytest.mark.parametrize("density", [0.001, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("lifespan", [1, 3, 1000])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_dct_is_the_papers_recurrence(size: int, lifespan: int, density: float) -> None:
    outcomes = dct(size, 7, lambda: DCTDP(lifespan), density)
    errors, taus = np.zeros((size, N)), [[0.0] * 3 for _ in range(size)]
    for step in range(7):
        sent = np.zeros((size, N))
        for rank in range(size):
            w = gradient(N, 100 * rank + step).double().numpy() + errors[rank]
            parts = np.split(w, [600, 607])
            for which, part in enumerate(parts):
                if step % lifespan == 0:
                    place = min(int(part.size * (1 - density)), part.size - 1)
                    taus[rank][which] = np.sort(np.abs(part))[place]
            masks = [np.abs(part) >= tau * (1 - 1e-6)
                     for part, tau in zip(parts, taus[rank], strict=True)]  # fmt: skip
            mask = np.concatenate(masks)
            sent[rank], errors[rank] = w * mask, w * ~mask
            assert outcomes[rank][step].contributed_bytes == 8 * mask.sum()
        for rank in range(size):
            reduced = outcomes[rank][step].reduced
            np.testing.assert_allclose(reduced.mean, sent.mean(0), rtol=0, atol=1e-4)
            np.testing.assert_allclose(reduced.unsent, errors[rank], rtol=0, atol=1e-4)


def test_dct_keeps_its_thresholds_by_parameter_until_the_density_changes() -> None:
    def work(workers: ThreadWorkers) -> None:
        replica = Replica(workers, DCTDP())
        grad = gradient(N, 0)
        assert replica.reduce(grad, 0.1, 0, of=SHAPES).contributed_bytes == 8 * (60 + 1 + 1)
        weight = {"weight": (20, 30)}
        assert replica.reduce(grad[:600] / 1e9, 0.1, 1, of=weight).contributed_bytes == 0
        assert replica.reduce(grad[:600] * 1e9, 0.1, 2, of=weight).contributed_bytes == 8 * 600
        assert replica.reduce(grad[:600] * 1e9, 0.2, 3, of=weight).contributed_bytes == 8 * 120

    together(2, work)


def test_dct_sends_the_whole_of_what_it_is_told_to_but_for_zeros() -> None:
    def work(workers: ThreadWorkers) -> None:
        replica = Replica(workers, DCTDP(whole=["2.weight"]), Residual())
        grad = gradient(300, 0)
        grad[100:150] = 0
        shapes = {"1.weight": (100,), "2.weight": (200,)}
        for step in range(3):
            outcome = replica.reduce(grad * (step + 1), 0.1, step, of=shapes)
            assert torch.equal(outcome.reduced.mean[100:], grad[100:] * (step + 1))
            assert not outcome.reduced.unsent[100:].any()
            sent = outcome.reduced.mean[:100].count_nonzero()
            assert 0 < sent < 100 and outcome.contributed_bytes == 8 * (150 + sent)
            assert (replica.compressor.sent_entries, replica.compressor.sent_of) == (sent, 100)

    together(1, work)


@pytest.mark.parametrize("density", [0.001, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("n", [1, 7, 1000, 40_000])
def test_dct_finds_the_same_threshold_by_sorting_as_by_selection(n: int, density: float) -> None:
    grad = gradient(n, 4)
    assert torch.equal(by_sort(grad, density), reached_at(grad, density))
    assert int((grad.abs() >= by_sort(grad, density)).sum()) == kept(n, density)


def test_dct_finds_about_the_same_in_a_sample_and_the_same_where_there_is_little() -> None:
    large = gradient(400_000, 5)
    reached = (large.abs() >= by_sample(large, 0.05)).float().mean()
    assert float(reached) == pytest.approx(0.05, rel=0.25)
    small = gradient(1000, 5)
    assert torch.equal(by_sample(small, 0.05), by_sort(small, 0.05))


@pytest.mark.parametrize(
    ("refresh", "expected"),
    [("paper", [0, 200, 400]), ("warmup", [0, 10, 30, 100, 200, 300, 400])],
)
def test_dct_computes_its_thresholds_when_they_are_due(refresh: str, expected: list[int]) -> None:
    def work(workers: ThreadWorkers) -> list[int]:
        replica, found = Replica(workers, DCTDP(200, refresh)), []
        for step in range(401):
            before = replica.compressor.thresholds.get("v")
            replica.reduce(gradient(100, 3) * (step + 1), 0.1, step, of={"v": (100,)})
            if replica.compressor.thresholds["v"] is not before:
                found.append(step)
        return found

    assert together(1, work) == [expected]


def test_dct_sends_less_once_its_threshold_knows_of_the_residual() -> None:
    """The first one is kept by the paper, and then several times the density is sent."""

    def achieved_density(refresh: str) -> float:
        def work(workers: ThreadWorkers) -> float:
            replica, sent = Replica(workers, DCTDP(1000, refresh), Residual()), 0
            for step in range(60):
                outcome = replica.reduce(gradient(2000, step), 0.05, step, of={"v": (2000,)})
                entries = replica.compressor.sent_entries
                assert outcome.contributed_bytes == 8 * entries
                sent += entries if step > 30 else 0
            return sent / 29 / 2000

        return together(1, work)[0]

    assert achieved_density("paper") > 1.5 * achieved_density("warmup") > 0.05


def test_dct_never_sends_zeros_nor_keeps_a_threshold_of_zero() -> None:
    def work(workers: ThreadWorkers) -> list[int]:
        replica = Replica(workers, DCTDP())
        few = torch.zeros(100).index_fill_(0, torch.tensor([3, 5]), 1.0)
        grads = [torch.zeros(100), few, gradient(100, 1), gradient(100, 1)]
        steps = [
            replica.reduce(grad, 0.1, step, of={"v": (100,)}) for step, grad in enumerate(grads)
        ]
        return [one.contributed_bytes // 8 for one in steps]

    assert together(1, work) == [[0, 2, 10, 10]]


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
