"""NetSenseML's compressor against its algorithm in float64, its bytes, and what it prunes."""

from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.netsense import NetSenseML
from compressors.pruning import kth_largest, prune_
from harness.engine.exchange.feedback import NoFeedback, Residual
from tests.compressors.reductions import KINDS, Outcome, Replica, gradient
from tests.compressors.threads import ThreadWorkers, together

SHAPES = {"conv.weight": (8, 3, 3, 3), "conv.bias": (8,), "norm.weight": (8,),
          "head.weight": (10, 40), "relative_position": (20, 5)}  # fmt: skip
PRUNED = ("conv.weight", "head.weight")
BUCKETS = (("head.weight", "norm.weight"), ("relative_position", "conv.bias", "conv.weight"))
WEIGHTS = {name: gradient(prod(shape), 50).view(shape) for name, shape in SHAPES.items()}
STEPS = 4


def algorithm_2(
    grad: np.ndarray, names: tuple[str, ...], ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """What one worker sends of a bucket, and what it keeps; float64, printed order of steps."""
    n, left = grad.size, grad.copy()
    halved = ratio < 0.1 and 2**-14 * n**0.5 < np.linalg.norm(grad) <= 65504
    ratio = min(1, 2 * ratio) if halved else ratio
    first = 0
    for name in names:
        size = prod(SHAPES[name])
        if name in PRUNED:
            smallest = np.argsort(np.abs(WEIGHTS[name].flatten().numpy()), kind="stable")
            left[first + smallest[: int(0.5 * (1 - ratio) * size)]] = 0
        first += size
    order = np.argsort(-np.abs(left), kind="stable")[: max(1, int(ratio * n))]
    sent = np.zeros(n)
    sent[order] = left[order].astype(np.float16) if halved else left[order]
    return sent, left - sent


def exchange(
    size: int, density: float, make: Any, scale: float, feedback: bool
) -> list[list[Outcome]]:
    """Outcomes of all buckets and steps, by worker."""

    def work(workers: ThreadWorkers) -> list[Outcome]:
        kept = Residual() if feedback else NoFeedback()
        replica = Replica(workers, make(), kept, weights=WEIGHTS)
        outcomes = []
        for step in range(STEPS):
            for index, names in enumerate(BUCKETS):
                of = {name: SHAPES[name] for name in names}
                n = sum(map(prod, of.values()))
                grad = gradient(n, 100 * workers.rank + 10 * step + index) * scale
                outcomes.append(replica.reduce(grad, density, step, index, of))
        return outcomes

    return together(size, work)


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e5])  # too small, right and too large for float16
@pytest.mark.parametrize("density", [0.01, 0.06, 0.1, 0.6])
def test_steps_with_feedback_are_those_of_float64(density: float, scale: float) -> None:
    workers = exchange(3, density, NetSenseML, scale, feedback=True)
    for position in range(STEPS * len(BUCKETS)):
        names = BUCKETS[position % len(BUCKETS)]
        here = [outcomes[position] for outcomes in workers]
        expected = [algorithm_2(one.grad.double().numpy(), names, density) for one in here]
        mean = np.mean([sent for sent, _ in expected], axis=0)
        tiny = 1e-6 * float(max(one.grad.abs().max() for one in here))
        for one, (_, unsent) in zip(here, expected, strict=True):
            np.testing.assert_allclose(one.reduced.mean.numpy(), mean, rtol=0, atol=tiny)
            assert one.reduced.unsent is not None
            np.testing.assert_allclose(one.reduced.unsent.numpy(), unsent, rtol=0, atol=tiny)


@pytest.mark.parametrize("index_bytes", [4, 8])
@pytest.mark.parametrize("density", [0.001, 0.005, 0.05, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("scale", [1e-7, 1.0])
def test_bytes_are_those_of_the_paper(scale: float, density: float, index_bytes: int) -> None:
    """Doubling the ratio for half the bytes of a value sends more: positions are not halved."""
    make = partial(NetSenseML, index_dtype=f"int{8 * index_bytes}")
    halved = density < 0.1 and scale == 1.0
    for position, one in enumerate(exchange(2, density, make, scale, feedback=False)[0]):
        n = sum(prod(SHAPES[name]) for name in BUCKETS[position % len(BUCKETS)])
        k = max(1, int((2 * density if halved else density) * n))
        of_values = k * ((2 if halved else 4) + index_bytes)
        assert one.contributed_bytes == (4 * n if density == 1 else of_values)


def test_at_ratio_one_it_is_the_mean_of_whole_gradients() -> None:
    workers = exchange(2, 1.0, NetSenseML, 1.0, feedback=False)
    for one, other in zip(*workers, strict=True):
        mean = (one.grad + other.grad) / 2
        torch.testing.assert_close(one.reduced.mean, mean)
        assert one.reduced.unsent is None


def reduced(grads: list[Tensor], density: float, **fields: Any) -> list[Outcome]:
    """One bucket of vectors, which are not pruned."""

    def work(workers: ThreadWorkers) -> Outcome:
        return Replica(workers, NetSenseML(**fields)).reduce(grads[workers.rank], density)

    return together(len(grads), work)


@pytest.mark.parametrize(("rms", "tr_d", "halved"), [
    (0.99 * 2**-14, "auto", False),
    (1.01 * 2**-14, "auto", True),
    (0.99 * 65504 / 20, "auto", True),  # norms from here on, of 400 elements
    (1.01 * 65504 / 20, "auto", False),
    (0.2, 4.1, False),
    (0.2, 3.9, True),
    (1e-10, 0.0, True),
    (0.0, 0.0, False),
])  # fmt: skip
def test_when_values_are_halved(rms: float, tr_d: Any, halved: bool) -> None:
    for density, doubled in ((0.05, halved), (0.1, False)):
        [one] = reduced([torch.full((400,), rms)], density, tr_d=tr_d)
        k = 40 if density == 0.1 or doubled else 20
        assert one.contributed_bytes == k * (6 if doubled else 8)


def test_workers_decide_by_themselves() -> None:
    small, usual = torch.full((400,), 1e-6), torch.full((400,), 1.0)
    few, many = reduced([small, usual], 0.05)
    assert (few.contributed_bytes, many.contributed_bytes) == (20 * 8, 40 * 6)
    assert torch.equal(few.reduced.mean, many.reduced.mean)
    expected = torch.zeros(400)
    expected[:20], expected[20:40] = (1 + 1e-6) / 2, 0.5
    torch.testing.assert_close(few.reduced.mean, expected)


def test_weights_are_left_as_they_are() -> None:
    before = {name: weights.clone() for name, weights in WEIGHTS.items()}
    exchange(2, 0.01, NetSenseML, 1.0, feedback=True)
    assert all(torch.equal(before[name], weights) for name, weights in WEIGHTS.items())


def test_where_nothing_is_trained_nothing_is_pruned() -> None:
    grad = gradient(400, 1)
    replica = partial(Replica, compressor=NetSenseML(tr_q=0))
    [one] = together(1, lambda w: replica(w).reduce(grad, 0.25, of={"a.weight": (20, 20)}))
    assert int(one.reduced.unsent.count_nonzero()) == 300


@pytest.mark.parametrize("share", [0.0, 0.001, 0.25, 0.4975, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_pruned_are_the_smallest_and_of_equal_ones_the_last(kind: str, share: float) -> None:
    weights = KINDS[kind](1)
    grad = torch.arange(1.0, 1 + weights.numel())
    order = np.argsort(-weights.abs().numpy(), kind="stable")
    keep = weights.numel() - int(share * weights.numel())
    expected = grad.clone()
    expected[torch.from_numpy(order[keep:].copy())] = 0
    prune_(grad, weights, share)
    assert torch.equal(grad, expected)


def test_what_is_pruned_and_not_finite_stays_visible() -> None:
    grad, weights = torch.tensor([1.0, torch.nan, -torch.inf, 2.0]), torch.tensor([1.0, 0, 0, 0.1])
    prune_(grad, weights, 0.5)
    assert grad[[0, 3]].tolist() == [1.0, 2.0] and grad[1:3].isnan().all()


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.505, 1.0])
def test_the_kth_largest_of_many(share: float) -> None:
    x = gradient(300_001, 3)
    k = max(1, int(share * len(x)))
    expected = np.sort(x.abs().numpy())[len(x) - k]
    assert kth_largest(x, k) == int(expected.view(np.int32))
