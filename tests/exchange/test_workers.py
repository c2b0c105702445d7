"""Collectives: values, and bytes counted as their algorithms move them."""

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from harness.config.backends import BETWEEN_CPUS
from harness.engine.exchange.backends.nccl import Nccl
from harness.engine.exchange.collectives import Workers
from tests.ranks import run_ranks

CHUNK_BYTES = BETWEEN_CPUS.chunk_bytes

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
        workers.backend = Nccl()
    mine = lengths[workers.rank]
    generator = torch.Generator().manual_seed(workers.rank)
    values = torch.randn(mine, generator=generator)
    index = torch.arange(mine, dtype=torch.int64) + workers.rank
    gathered = workers.all_gather(values, index)
    return [(v.numpy(), i.numpy()) for v, i in gathered], workers.sent_bytes, workers.received_bytes


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("lengths", [
    (5,), (3, 3), (0, 7), (1, 0, 4), (0, 0, 0), (CHUNK_BYTES, 3, CHUNK_BYTES // 2 + 1, 1),
])  # fmt: skip
def test_all_gather_returns_every_workers_tensors_whatever_their_lengths(lengths, padded):
    size = len(lengths)
    item_bytes = 12
    lengths_bytes = 2 * (size - 1) * 2 * 8
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


def _gather_unlike():
    workers = _workers()
    rank = workers.rank
    signs = torch.arange(2 * rank + 1, dtype=torch.uint8)
    scale = torch.tensor([0.5 + rank])
    halves = torch.full((rank,), 0.25, dtype=torch.bfloat16)
    gathered = workers.all_gather(signs, scale, halves)
    return [[part.tolist() for part in parts] for parts in gathered], workers.sent_bytes


@pytest.mark.parametrize("size", SIZES)
def test_tensors_gathered_together_may_have_unlike_lengths_and_types(size):
    bytes_of = [2 * rank + 1 + 4 + 2 * rank for rank in range(size)]
    for rank, (gathered, sent) in enumerate(run_ranks(size, _gather_unlike)):
        for owner, (signs, scale, halves) in enumerate(gathered):
            assert signs == list(range(2 * owner + 1))
            assert scale == [0.5 + owner]
            assert halves == [0.25] * owner
        assert sent == sum(bytes_of) - bytes_of[(rank + 1) % size] + 2 * (size - 1) * 3 * 8


def _gather_equal():
    workers = _workers()
    gathered = workers.all_gather(torch.full((5,), workers.rank, dtype=torch.uint8), equal=True)
    return [part.tolist() for (part,) in gathered], workers.sent_bytes, workers.received_bytes


@pytest.mark.parametrize("size", SIZES)
def test_a_promise_of_equal_lengths_saves_telling_them(size):
    for gathered, sent, received in run_ranks(size, _gather_equal):
        assert gathered == [[owner] * 5 for owner in range(size)]
        assert sent == received == 5 * (size - 1)


def _route(equal):
    workers = _workers()
    rank, size = workers.rank, workers.world_size
    length = [peer if equal else rank + 2 * peer for peer in range(size)]
    index = [
        torch.full((length[peer],), 10 * rank + peer, dtype=torch.int32) for peer in range(size)
    ]
    signs = [torch.tensor([rank, peer, 7], dtype=torch.uint8) for peer in range(size)]
    arrived = workers.all_to_all(signs, index, equal=equal)
    counted = (workers.sent_bytes, workers.received_bytes)
    return [[part.tolist() for part in parts] for parts in arrived], counted


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_all_to_all_brings_each_worker_its_piece_of_every_other(size, equal):
    def length(sender, peer):
        return peer if equal else sender + 2 * peer

    header = 0 if equal else 2 * 8 * (size - 1)
    for rank, (arrived, (sent, received)) in enumerate(run_ranks(size, _route, equal)):
        others = [peer for peer in range(size) if peer != rank]
        for owner, (signs, index) in enumerate(arrived):
            assert signs == [owner, rank, 7]
            assert index == [10 * owner + rank] * length(owner, rank)
        assert sent == header + sum(3 + 4 * length(rank, peer) for peer in others)
        assert received == header + sum(3 + 4 * length(peer, rank) for peer in others)


def _sums(kind, values):
    workers = _workers()
    own = torch.tensor(values, dtype=kind) * (workers.rank + 1)
    return workers.all_reduce(own, op="sum").tolist(), workers.sent_bytes


@pytest.mark.parametrize(
    "kind", [torch.int8, torch.int32, torch.float16, torch.bfloat16, torch.float32]
)
def test_sums_are_taken_in_the_type_given(kind):
    for total, sent in run_ranks(3, _sums, kind, [1, -2, 0, 20]):
        assert total == [6, -12, 0, 120]
        assert sent == 4 * 4 * kind.itemsize // 3


def _agree():
    workers = _workers()
    value = 0.1 * (workers.rank + 1)
    return workers.agree(value, "min"), workers.agree(value, "mean")


def test_agreement_is_one_value_everywhere():
    answers = run_ranks(3, _agree)
    assert len(set(answers)) == 1
    assert answers[0] == pytest.approx((0.1, 0.2))


def _min():
    workers = _workers()
    rank = float(workers.rank)
    return workers.all_reduce_min([rank, -rank, 0.1, 7e-7 * (rank + 1)]), workers.sent_bytes


def test_the_least_is_taken_element_by_element_and_counted():
    for least, sent in run_ranks(3, _min):
        assert least == [0.0, -2.0, 0.1, 7e-7]
        assert sent == 2 * 2 * 4 * 8 // 3


def _intervals():
    workers = _workers()
    readings = [time.monotonic()]
    for collective in (workers.all_reduce, workers.all_gather):
        collective(torch.ones(1000))
        readings.append(time.monotonic())
    return readings, workers.intervals


def test_intervals_are_when_each_collective_was_on_the_wire():
    """An all-gather of lengths that are not known is two of them."""
    for (begin, between, end), intervals in run_ranks(2, _intervals):
        assert len(intervals) == 3
        bounds = [begin, *intervals[0], between, *intervals[1], *intervals[2], end]
        assert bounds == sorted(bounds)
