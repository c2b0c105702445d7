"""The quantised all-reduce: against one in numpy, by its bytes, and what its servers keep."""

import numpy as np
import pytest
import torch

from compressors.quantised_allreduce import QuantisedAllReduce
from tests.compressors.reductions import Outcome, Replica, gradient, run
from tests.compressors.threads import ThreadWorkers, together

SIZES = (1, 255, 256, 257, 1000, 5003)


def rounded(x: np.ndarray, bits: int, row: int) -> np.ndarray:
    """Nearest multiple, row by row, of the largest magnitude over the levels."""
    levels, found = 2 ** (bits - 1) - 1, []
    for part in np.split(x, range(row, x.size, row)):
        step = np.float32(np.abs(part).max()) / np.float32(levels)
        found.append(np.clip(np.floor(part / step + 0.5), -levels, levels) * step)
    return np.concatenate(found)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("bits", [4, 8])
def test_it_rounds_to_the_nearest_twice(bits: int, n: int, workers: int) -> None:
    grads = [gradient(n, rank) for rank in range(workers)]
    sent = [rounded(grad.double().numpy(), bits, 256) for grad in grads]
    mean, row = sum(sent) / workers, 256
    length = row * -(-n // (row * workers))
    slices = [mean[first : first + length] for first in range(0, n, length)]
    expected = np.concatenate([rounded(one, bits, row) for one in slices])
    outcomes = run(lambda: QuantisedAllReduce(bits), grads, 1.0)
    for grad, own, outcome in zip(grads, sent, outcomes, strict=True):
        step = max(float(each.abs().max()) for each in grads) / (2 ** (bits - 1) - 1)
        apart = np.abs(outcome.reduced.unsent.double().numpy() - (grad.double().numpy() - own))
        assert (apart > 1e-5 * step).mean() < 0.01 and apart.max() <= 1.001 * step  # halves
        wrong = np.abs(outcome.reduced.mean.double().numpy() - expected) > 1e-5 * step
        assert wrong.mean() < 0.01


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("workers", [2, 4])
def test_bytes_are_codes_and_a_scale_for_each_row_both_ways(workers: int, bits: int) -> None:
    """2 (P - 1) / P n (b / 8 + 4 / 256), of which an all-gather's contribution is n / P of it."""
    n = 256 * 8 * workers
    (outcome, *_) = run(
        lambda: QuantisedAllReduce(bits), [gradient(n, rank) for rank in range(workers)], 1.0
    )
    each = bits / 8 + 4 / 256
    contributed = (workers - 1) / workers * n * each + n / workers * each
    assert outcome.contributed_bytes == contributed


def test_its_error_is_within_half_a_step_twice() -> None:
    for bits in (4, 8):
        grads = [gradient(10_000, rank) for rank in range(3)]
        (outcome, *_) = run(lambda bits=bits: QuantisedAllReduce(bits), grads, 1.0)
        largest = max(float(grad.abs().max()) for grad in grads)
        apart = (outcome.reduced.mean - sum(grads) / 3).abs().max()
        assert apart <= 2 * largest / (2**bits - 2) * 1.001


@pytest.mark.parametrize("feedback", [True, False])
def test_with_feedback_at_the_servers_nothing_is_lost_for_long(feedback: bool) -> None:
    """The sum of the means is then that of the gradients to one step, however many there were."""
    steps, n = 40, 3000

    def work(workers: ThreadWorkers) -> list[Outcome]:
        replica = Replica(workers, QuantisedAllReduce(4, server_feedback=feedback))
        grad = gradient(n, workers.rank)
        return [replica.reduce(grad, 1.0, step) for step in range(steps)]

    outcomes = together(2, work)
    sent = sum(one[0].grad - one[0].reduced.unsent for one in outcomes) / 2  # to the servers
    total = sum(outcome.reduced.mean for outcome in outcomes[0])
    apart = float((total - steps * sent).abs().max())
    step = float(sent.abs().max()) / 7
    assert (apart <= 1.5 * step) == feedback


def test_buckets_may_be_laid_out_anew() -> None:
    def work(workers: ThreadWorkers) -> dict:
        replica = Replica(workers, QuantisedAllReduce(4, server_feedback=True))
        for step, names in enumerate(("ab", "ab", "ba", "a")):
            of = {name: (500,) for name in names}
            replica.reduce(gradient(500 * len(names), step), 1.0, step, of=of)
        return replica.compressor.server_errors

    for errors in together(2, work):
        assert list(errors) == [("a",)]


def test_a_gradient_that_is_not_finite_is_seen() -> None:
    grad = gradient(1000, 0)
    grad[3] = torch.nan
    (_, other) = run(QuantisedAllReduce, [grad, gradient(1000, 1)], 1.0)
    assert not other.reduced.mean.isfinite().all()
