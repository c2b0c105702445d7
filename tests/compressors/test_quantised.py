"""QSGD and TernGrad: against a few lines of float64, without bias, in the bits they need."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.counter_rng import BITS, uniform
from compressors.qsgd import QSGD
from compressors.terngrad import TernGrad
from tests.compressors.reductions import Replica, gradient, run, shapes_of
from tests.compressors.threads import ThreadWorkers, together

STEP = 4  # at which `run` reduces
DRAWS = 400
CPU = torch.device("cpu")


def rounded(x: np.ndarray, key: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rounded stochastically; and where float32 may round the other way."""
    sum_ = x + (uniform(x.size, key, CPU).double().numpy() + 0.5) / 2**BITS
    return np.floor(sum_), np.abs(sum_ - np.round(sum_)) < 1e-3


def qsgd(grad: Tensor, bits: int, block: int, norm: str, rank: int) -> tuple[np.ndarray, ...]:
    v, s = grad.double().numpy(), 2 ** (bits - 1) - 1
    blocks = np.split(v, range(block, v.size, block))
    order = {"max": np.inf, "l2": 2}[norm]
    norms = np.concatenate([np.full(one.size, np.linalg.norm(one, order)) for one in blocks])
    levels, unsure = rounded(s * v / norms, (7, STEP, 0, rank))
    return norms * levels / s, unsure


def terngrad(grad: Tensor, sizes: list[int], clip: float, rank: int) -> tuple[np.ndarray, ...]:
    layers = np.split(grad.double().numpy(), np.cumsum(sizes)[:-1])
    bounds = [clip * np.sqrt((one**2).mean()) for one in layers]
    clipped = [np.clip(one, -bound, bound) for one, bound in zip(layers, bounds, strict=True)]
    scales = np.concatenate([np.full(one.size, np.abs(one).max()) for one in clipped])
    levels, unsure = rounded(np.concatenate(clipped) / scales, (7, STEP, 0, rank))
    return scales * levels, unsure


def compare(make: Callable[[], Any], sent: Callable[[Tensor, int], tuple], n: int) -> None:
    grads = [gradient(n, rank) for rank in range(3)]
    theirs = [sent(grad, rank) for rank, grad in enumerate(grads)]
    sure = ~np.any([unsure for _, unsure in theirs], axis=0)
    assert n < 100 or sure.mean() > 0.98
    mean = sum(values for values, _ in theirs) / 3
    for (grad, reduced, _), (values, _) in zip(run(make, grads, 1.0), theirs, strict=True):
        assert reduced.unsent is not None
        close = {"rtol": 1e-5, "atol": 1e-5 * float(grad.abs().max())}
        np.testing.assert_allclose(reduced.mean.numpy()[sure], mean[sure], **close)
        unsent = grad.double().numpy() - values
        np.testing.assert_allclose(reduced.unsent.numpy()[sure], unsent[sure], **close)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 5000])
@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_qsgd_is_the_papers(bits: int, norm: str, n: int) -> None:
    compare(lambda: QSGD(bits, 64, norm, seed=7),
            lambda grad, rank: qsgd(grad, bits, 64, norm, rank), n)  # fmt: skip


@pytest.mark.parametrize("n", [1, 7, 5000])
@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize("clip", [2.5, 1e9])
def test_terngrad_is_the_papers(clip: float, layerwise: bool, n: int) -> None:
    sizes = [int(np.prod(shape)) for shape in shapes_of(n).values()] if layerwise else [n]
    compare(
        lambda: TernGrad(clip, layerwise, seed=7),
        lambda grad, rank: terngrad(grad, sizes, clip, rank),
        n,
    )


def draws(make: Callable[[], Any], grad: Tensor) -> np.ndarray:
    """What one worker sends of `grad` at each of many steps, float64 [DRAWS, n]."""

    def work(workers: ThreadWorkers) -> list[Tensor]:
        replica = Replica(workers, make())
        return [replica.reduce(grad, 1.0, step).reduced.mean for step in range(DRAWS)]

    return torch.stack(together(1, work)[0]).double().numpy()


@pytest.mark.parametrize("make", [
    lambda: QSGD(2, 128),
    lambda: QSGD(4, 128, "l2"),
    lambda: QSGD(8),
    lambda: TernGrad(float("inf")),
    lambda: TernGrad(float("inf"), layerwise=False),
])  # fmt: skip
def test_the_expectation_is_the_gradient(make: Callable[[], Any]) -> None:
    """Seen along several directions, each a sum of many elements."""
    grad = gradient(2000, 1)
    sent, exact = draws(make, grad), grad.double().numpy()
    everywhere = np.ones(exact.size)
    for along in (everywhere, np.sign(exact), exact, everywhere.cumsum(), np.abs(exact) < 0.1):
        seen = sent @ along
        assert abs(seen.mean() - exact @ along) < 4.5 * seen.std() / DRAWS**0.5


@pytest.mark.parametrize("n", [1, 7, 8, 511, 512, 513, 5000])
@pytest.mark.parametrize(
    ("density", "bits"), [(0.001, 2), (0.1, 3), (0.125, 4), (0.2, 6), (0.25, 8), (1.0, 8)]
)
def test_qsgd_takes_the_bits_that_density_affords(n: int, density: float, bits: int) -> None:
    outcome = run(QSGD, [gradient(n, 0), gradient(n, 1)], density)[0]
    assert outcome.contributed_bytes == -(-bits * n // 8) + 4 * -(-n // 512)
    assert run(lambda: QSGD(5), [gradient(n, 0)], density)[0].contributed_bytes == (
        -(-min(5, bits) * n // 8) + 4 * -(-n // 512)
    )


@pytest.mark.parametrize("n", [1, 3, 4, 5, 5000])
@pytest.mark.parametrize("layerwise", [False, True])
def test_terngrad_takes_two_bits(layerwise: bool, n: int) -> None:
    outcome = run(lambda: TernGrad(layerwise=layerwise), [gradient(n, 0), gradient(n, 1)], 0.1)[0]
    assert outcome.contributed_bytes == -(-n // 4) + 4 * (len(shapes_of(n)) if layerwise else 1)


@pytest.mark.parametrize("make", [QSGD, lambda: QSGD(2, norm="l2"), TernGrad])
def test_workers_draw_apart(make: Callable[[], Any]) -> None:
    one, two = run(make, [gradient(1000, 0)] * 2, 1.0)
    assert not torch.equal(one.reduced.unsent, two.reduced.unsent)


@pytest.mark.parametrize("clip", [2.5, float("inf")])
def test_of_nothing_terngrad_sends_nothing(clip: float) -> None:
    ((_, (mean, unsent), _),) = run(lambda: TernGrad(clip), [torch.zeros(100)], 1.0)
    assert not mean.any() and unsent is not None and not unsent.any()
