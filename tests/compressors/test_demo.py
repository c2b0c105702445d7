"""DeMo: against one in float64, by the bytes of its wire, and what of an optimizer it replaces."""

import numpy as np
import pytest
import torch

from compressors.chunks import chunks_of
from compressors.dct import transform
from compressors.demo import DeMo
from harness.config.settings import BadSetting
from harness.validation import checked
from tests.compressors.reductions import Outcome, Replica, gradient
from tests.compressors.test_chunks import members
from tests.compressors.threads import ThreadWorkers, together
from tests.test_settings import settings

PUBLISHED = 32 / 4096  # of a chunk
SHAPES = {"weight": (128, 192), "kernel": (32, 3, 3, 3), "bias": (192,)}
N = sum(int(np.prod(shape)) for shape in SHAPES.values())
STEPS, SIZE, K = 4, 3, 8


def reduced(make, size: int = SIZE, density: float = PUBLISHED, steps: int = 1, shapes=SHAPES):
    """Outcomes by worker and step."""
    n = sum(int(np.prod(shape)) for shape in shapes.values())

    def work(workers: ThreadWorkers) -> list[Outcome]:
        replica = Replica(workers, make())
        grads = [gradient(n, 10 * step + workers.rank) for step in range(steps)]
        return [replica.reduce(grad, density, step, of=shapes) for step, grad in enumerate(grads)]

    return together(size, work)


def basis(n: int) -> np.ndarray:
    k, x = np.mgrid[:n, :n]
    rows = np.sqrt(2 / n) * np.cos(np.pi * k * (2 * x + 1) / (2 * n))
    rows[0] = np.sqrt(1 / n)
    return rows


def blocks() -> list[tuple[np.ndarray, int, int]]:
    """Elements of every chunk, its height and width."""
    found, first = [], 0
    sides = {"weight": (64, 64), "kernel": (32, 27), "bias": (1, 64)}
    for name, shape in SHAPES.items():
        found += [(np.array(one) + first, *sides[name]) for one in members([shape], 64)]
        first += int(np.prod(shape))
    return found


def published(beta: float) -> list[np.ndarray]:
    """What the mean coefficients stand for, by step, in float64."""
    momenta, means = np.zeros((SIZE, N)), []
    for step in range(STEPS):
        for rank in range(SIZE):
            momenta[rank] = beta * momenta[rank] + gradient(N, 10 * step + rank).numpy()
        mean = np.zeros(N)
        for where, h, w in blocks():
            down, across = basis(h), basis(w)
            total, count = np.zeros((h, w)), np.zeros((h, w))
            for rank in range(SIZE):
                spectrum = down @ momenta[rank, where].reshape(h, w) @ across.T
                kept = np.zeros(h * w, bool)
                kept[np.argsort(-np.abs(spectrum.ravel()))[:K]] = True
                kept = kept.reshape(h, w)
                momenta[rank, where] -= (down.T @ (spectrum * kept) @ across).ravel()
                total, count = total + spectrum * kept, count + kept
            mean[where] = (down.T @ (total / np.maximum(1, count)) @ across).ravel()
        means.append(mean)
    return means


@pytest.mark.parametrize("sign", [True, False])
def test_it_is_the_published_one(sign: bool) -> None:
    outcomes = reduced(lambda: DeMo(decay=0.9, sign=sign), density=K / 4096, steps=STEPS)
    for step, expected in enumerate(published(0.9)):
        for worker in outcomes:
            found = worker[step].reduced.mean.double().numpy()
            if sign:
                sure = np.abs(expected) > 1e-5
                assert sure.mean() > 0.99
                np.testing.assert_array_equal(found[sure], np.sign(expected[sure]))
            else:
                np.testing.assert_allclose(found, expected, atol=2e-5)


def test_all_coefficients_without_a_sign_are_the_mean_gradient() -> None:
    """Then nothing is left of the momentum."""
    outcomes = reduced(lambda: DeMo(sign=False), density=1.0, steps=3)
    for step in range(3):
        expected = sum(gradient(N, 10 * step + rank) for rank in range(SIZE)) / SIZE
        found = outcomes[0][step].reduced.mean
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))


@pytest.mark.parametrize(("packed", "times"), [(False, 42.67), (True, 146.3)])
def test_bytes_are_those_of_the_authors_code_or_packed(packed: bool, times: float) -> None:
    shapes = {"one": (512, 512), "two": (256, 1024)}
    n = 2 * 512 * 512
    of = reduced(lambda: DeMo(packed=packed), 2, PUBLISHED if not packed else K / 4096, 1, shapes)
    sent = of[0][0].contributed_bytes
    k = K if packed else 32
    assert sent == n // 4096 * k * (28 if packed else 96) // 8
    assert 4 * n / sent * k / 32 == pytest.approx(times, rel=0.01)


def test_packed_values_are_what_is_subtracted() -> None:
    """Nothing is lost: with all coefficients, the momentum has what bfloat16 has not."""

    def work(workers: ThreadWorkers) -> tuple[Outcome, torch.Tensor]:
        compressor = DeMo(sign=False, packed=True)
        outcome = Replica(workers, compressor).reduce(gradient(N, 0), 1.0, of=SHAPES)
        spectrum = torch.cat(list(compressor.spectra.values()))
        chunks = chunks_of([torch.Size(shape) for shape in SHAPES.values()], 64, 1)
        return outcome, transform(spectrum, chunks, torch.empty(N), inverse=True)

    ((outcome, left),) = together(1, work)
    assert left.any()
    grad = gradient(N, 0)
    most = 1e-6 * float(grad.abs().max())
    torch.testing.assert_close(outcome.reduced.mean + left, grad, rtol=0, atol=most)


@pytest.mark.parametrize(
    ("key", "bad", "good"),
    [("optimizer.momentum", "0.9", "0"), ("error_feedback", "true", "false")],
)
def test_it_does_the_work_of_momentum_and_of_feedback(key: str, bad: str, good: str) -> None:
    with pytest.raises(BadSetting, match=f"{key} must be {good} with DeMo, which does its work"):
        checked(settings("method=demo", f"{key}={bad}"))
