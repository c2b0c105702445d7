"""Collectives: values, and bytes counted as their algorithms move them."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from harness.workers import CHUNK_BYTES, Workers
from tests.ranks import run_ranks

SIZES = (1, 2, 3, 4)


def _workers() -> Workers:
    return Workers(dist.new_group())


def _mean(n):
    workers = _workers()
    tensor = torch.full((n,), float(workers.rank + 1))
    return workers.all_reduce(tensor).tolist(), workers.sent_bytes, workers.received_bytes


@pytest.mark.parametrize("size", SIZES)
def test_all_reduce_is_the_mean_and_counts_ring_bytes(size):
    n = 1000
    for mean, sent, received in run_ranks(size, _mean, n):
        np.testing.assert_allclose(mean, (size + 1) / 2, rtol=1e-6)
        assert sent == received == 2 * (size - 1) * 4 * n // size


def _gather(lengths, padded):
    workers = _workers()
    if padded:  # what a GPU uses, over gloo
        workers._ring = workers._padded
    mine = lengths[workers.rank]
    generator = torch.Generator().manual_seed(workers.rank)
    values = torch.randn(mine, generator=generator)
    index = torch.arange(mine, dtype=torch.int64) + workers.rank
    gathered = workers.all_gather(values, index)
    return [(v.numpy(), i.numpy()) for v, i in gathered], workers.sent_bytes, workers.received_bytes


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    "lengths",
    [
        (5,),
        (3, 3),
        (0, 7),
        (1, 0, 4),
        (0, 0, 0),
        (CHUNK_BYTES, 3, CHUNK_BYTES // 2 + 1, 1),
    ],
)
def test_all_gather_returns_every_workers_tensors_whatever_their_lengths(lengths, padded):
    size = len(lengths)
    item_bytes = 12
    lengths_bytes = 2 * (size - 1) * 8 * size // size
    for rank, (gathered, sent, received) in enumerate(run_ranks(size, _gather, lengths, padded)):
        for owner, (values, index) in enumerate(gathered):
            generator = torch.Generator().manual_seed(owner)
            np.testing.assert_array_equal(
                values, torch.randn(lengths[owner], generator=generator).numpy()
            )
            np.testing.assert_array_equal(index, np.arange(lengths[owner]) + owner)
        total = item_bytes * sum(lengths)
        assert sent == total - item_bytes * lengths[(rank + 1) % size] + lengths_bytes
        assert received == total - item_bytes * lengths[rank] + lengths_bytes


def _agree():
    workers = _workers()
    value = 0.1 * (workers.rank + 1)
    return workers.agree(value, "min"), workers.agree(value, "mean")


def test_agreement_is_one_value_everywhere():
    answers = run_ranks(3, _agree)
    assert len(set(answers)) == 1
    assert answers[0] == pytest.approx((0.1, 0.2))


def _seconds():
    workers = _workers()
    workers.all_reduce(torch.ones(1000))
    first = workers.seconds
    workers.all_gather(torch.ones(10))
    return first, workers.seconds, list(workers.intervals)


def test_seconds_are_the_sum_of_the_recorded_intervals():
    for first, both, intervals in run_ranks(2, _seconds):
        assert 0 < first < both
        assert both == pytest.approx(sum(end - begin for begin, end in intervals))
