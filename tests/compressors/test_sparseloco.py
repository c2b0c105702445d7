"""SparseLoCo's codec: against one in numpy, by the bytes of the paper, and its error feedback."""

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.sparseloco import SparseLoCo
from harness.engine.exchange.feedback import Residual
from tests.compressors.reductions import Outcome, Replica, gradient, run, shapes_of
from tests.compressors.test_chunks import members
from tests.compressors.threads import ThreadWorkers, together

PUBLISHED = 64 / 4096  # of a chunk
SHAPES = {"weight": (128, 192), "kernel": (32, 3, 3, 3), "bias": (192,)}
N = sum(int(np.prod(shape)) for shape in SHAPES.values())


def codec(grad: np.ndarray, k: int, bits: int) -> dict[int, float]:
    """What is sent, by position: the published rule in a few lines."""
    sent, first = {}, 0
    for shape in SHAPES.values():
        n = int(np.prod(shape))
        chunks = [[first + at for at in chunk] for chunk in members([shape], 64)]
        kept = [sorted(sorted(c, key=lambda at: (-abs(grad[at]), at))[:k]) for c in chunks]
        where = np.concatenate(kept)
        x = grad[where]
        mu = np.float32(x.mean(dtype=np.float64))
        centred = x - mu
        sd = np.sqrt((centred.astype(np.float64) ** 2).sum()) / np.sqrt(x.size - 1)
        step = np.float32(6 * sd / 2**bits)
        codes = np.clip(np.rint(centred / step + np.float32(2 ** (bits - 1))), 0, 2**bits - 1)
        for code in np.unique(codes):
            members_ = codes == code
            value = np.float32(centred[members_].mean(dtype=np.float64)) + mu
            sent.update(dict.fromkeys(where[members_].tolist(), value))
        first += n
    return sent


def reduced(make, grads: list[Tensor], density: float) -> list[Outcome]:
    def work(workers: ThreadWorkers) -> Outcome:
        return Replica(workers, make()).reduce(grads[workers.rank], density, of=SHAPES)

    return together(len(grads), work)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("k", [2, 64, 200])
def test_the_codec_is_that_of_the_reference(k: int, bits: int) -> None:
    grads = [gradient(N, rank) for rank in range(3)]
    outcomes = reduced(lambda: SparseLoCo(bits=bits), grads, k / 4096)
    mean = np.zeros(N)
    for grad, outcome in zip(grads, outcomes, strict=True):
        decoded = np.zeros(N, np.float32)
        for at, value in codec(grad.numpy(), k, bits).items():
            decoded[at] = value
        np.testing.assert_array_equal(outcome.reduced.unsent.numpy(), grad.numpy() - decoded)
        mean += decoded / 3
    for outcome in outcomes:
        np.testing.assert_allclose(outcome.reduced.mean.numpy(), mean, rtol=1e-5, atol=1e-7)


def test_at_the_published_setting_it_sends_146_times_less() -> None:
    """14 bits an entry, 64 of 4096, and the five numbers of a matrix: within 1 %."""
    shapes = {"one": (1024, 1024), "two": (512, 2048)}
    n = sum(int(np.prod(shape)) for shape in shapes.values())

    def work(workers: ThreadWorkers) -> Outcome:
        return Replica(workers, SparseLoCo()).reduce(gradient(n, 0), PUBLISHED, of=shapes)

    sent = together(2, work)[0].contributed_bytes
    assert sent == n // 4096 * 64 * 14 // 8 + 2 * 5 * 4
    assert 4 * n / sent == pytest.approx(146.3, rel=0.01)


@pytest.mark.parametrize("n", [1, 2, 3, 65, 4097, 20_001])
def test_bytes_are_those_of_its_entries(n: int) -> None:
    side = int((n // 2) ** 0.5)
    (outcome, _) = run(SparseLoCo, [gradient(n, 0), gradient(n, 1)], PUBLISHED)
    chunks = members(list(shapes_of(n).values()), 64)
    entries = sum(min(64, len(chunk)) for chunk in chunks)
    tensors = 2 if side else 1
    assert outcome.contributed_bytes == -(-3 * entries // 2) - (-entries // 4) + 20 * tensors


def test_the_residual_is_the_papers() -> None:
    """By e <- beta e + D and e <- e - Q(e)."""
    compressor = SparseLoCo()

    def work(workers: ThreadWorkers) -> list[Outcome]:
        replica = Replica(workers, compressor, Residual(decay=0.95))
        return [replica.reduce(gradient(N, step), PUBLISHED, step, of=SHAPES) for step in range(4)]

    error = np.zeros(N, np.float32)
    for step, outcome in enumerate(together(1, work)[0]):
        error = error * np.float32(0.95) + gradient(N, step).numpy()
        for at, value in codec(error, 64, 2).items():
            error[at] -= value
        np.testing.assert_allclose(outcome.reduced.unsent.numpy(), error, rtol=0, atol=1e-6)


def test_all_entries_without_codes_are_dense() -> None:
    grads = [gradient(N, rank) for rank in range(2)]
    (outcome, _) = run(lambda: SparseLoCo(bits=None), grads, 1.0)
    torch.testing.assert_close(outcome.reduced.mean, sum(grads) / 2)
    assert not outcome.reduced.unsent.any()
    assert outcome.contributed_bytes == -(-3 * N // 2) + 4 * N


def test_contributors_are_clipped_to_the_median_and_averaged_over_who_sent() -> None:
    """Three workers of one chunk, of which the last sends ten times as much."""
    base = torch.zeros(64)
    grads = [base.clone() for _ in range(3)]
    grads[0][[3, 9]] = torch.tensor([3.0, 4.0])
    grads[1][[3, 11]] = torch.tensor([6.0, 8.0])
    grads[2][[9, 20]] = torch.tensor([60.0, 80.0])

    def work(workers: ThreadWorkers) -> Outcome:
        compressor = SparseLoCo(bits=None, aggregate="contributors")
        return Replica(workers, compressor).reduce(grads[workers.rank], 0.0, of={"vector": (64,)})

    expected = base.clone()  # norms are 5, 10 and 100: the last is scaled to 10
    expected[3], expected[9], expected[11], expected[20] = 4.5, 5.0, 8.0, 8.0
    for outcome in together(3, work):
        torch.testing.assert_close(outcome.reduced.mean, expected)


@pytest.mark.parametrize("value", [0.0, 0.25, -3e-5])
def test_entries_that_are_equal_are_sent_as_they_are(value: float) -> None:
    """Their deviation is 0, and the step then 1."""
    (outcome,) = reduced(SparseLoCo, [torch.full((N,), value)], 1.0)
    assert torch.equal(outcome.reduced.mean, torch.full((N,), value))
