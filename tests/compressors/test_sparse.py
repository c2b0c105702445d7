"""Sparse vectors: their average, random positions, and the parameters that are refused."""

from math import isfinite, nan

import pytest
import torch
from torch import Tensor

from compressors.base import Reduced
from compressors.buffers import Buffers
from compressors.fused import scatter_mean
from compressors.randomk import RandomK
from compressors.rng import positions
from compressors.sampled_topk import SampledTopK
from compressors.sparse import add_take_out_, sum_, take_out_
from compressors.topk import TopK
from tests.compressors.reductions import gradient, run
from tests.compressors.threads import ThreadWorkers, together


def test_values_at_one_position_add_up() -> None:
    def work(workers: ThreadWorkers) -> list[float]:
        index = torch.tensor([1, 2 + workers.rank], dtype=torch.int32)
        return scatter_mean(
            Buffers(torch.zeros(4)), torch.tensor([1.0, 4.0]), index, workers
        ).tolist()

    assert together(2, work) == [[0.0, 1.0, 2.0, 2.0]] * 2


def test_lengths_may_differ() -> None:
    def work(workers: ThreadWorkers) -> list[float]:
        k = workers.rank  # the first contributes nothing
        values, index = torch.full((k,), 2.0), torch.arange(k)
        return scatter_mean(Buffers(torch.zeros(3)), values, index, workers).tolist()

    assert together(2, work) == [[1.0, 0.0, 0.0]] * 2


def test_what_is_taken_out_is_gone() -> None:
    grad = torch.tensor([1.0, 2.0, 3.0])
    assert take_out_(grad, torch.tensor([0, 2])).tolist() == [1.0, 3.0]
    assert grad.tolist() == [0.0, 2.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("n", [1, 1000, 2_000_003, 4_200_003])
def test_a_sum_of_entries_is_that_of_whole_vectors(n, ordered, dtype):
    """Also where it begins at any address, and of positions in any order."""
    dense = [gradient(n, seed) * (gradient(n, seed + 5) > 1) for seed in range(3)]
    entries = []
    for vector in dense:
        index = vector.nonzero().flatten()
        index = index if ordered else index.flip(0)
        entries.append((vector[index], index.to(dtype)))
    for start in (0, 1):
        total = torch.full((n + 1,), 7.0)
        expected = dense[0] * 0.5 + dense[1] * 0.5 + dense[2] * 0.5
        assert torch.equal(sum_(total[start : start + n], entries, 0.5), expected)
        assert total[n * (1 - start)] == 7


@pytest.mark.parametrize("outside", [-1, 10])
def test_a_position_outside_is_refused(outside: int) -> None:
    index = torch.tensor([3, outside], dtype=torch.int32)
    with pytest.raises(IndexError, match="outside a vector of 10|out of"):
        sum_(torch.empty(10), [(torch.ones(2), index)], 1.0)


@pytest.mark.parametrize("clear", [True, False])
def test_adding_and_taking_out_are_one_after_the_other(clear: bool) -> None:
    total, added, index = gradient(9000, 0), gradient(9000, 1), torch.arange(5, 9000, 77).int()
    both = total + added
    values, seen = add_take_out_(total, added, clear, index)
    assert isfinite(seen) and torch.equal(values, both[index.long()])
    assert torch.equal(total, both.index_fill(0, index.long(), 0))
    assert added.any() != clear
    added[8999] = nan
    assert not isfinite(add_take_out_(total, added, clear, index)[1])


@pytest.mark.parametrize("index", [[5000, 2], [-1, 4], [5, 9000], [9000]])
def test_positions_to_take_out_ascend_inside(index: list[int]) -> None:
    where = torch.tensor(index, dtype=torch.int32)
    with pytest.raises(IndexError, match=r"positions must ascend in \[0, 9000\), got"):
        add_take_out_(gradient(9000, 0), None, False, where)


def sent(grad: Tensor, reduced: Reduced) -> Tensor:
    """Which entries of `grad` were sent, [n]; the others must be in `unsent` to the bit."""
    assert reduced.unsent is not None
    missing = reduced.unsent.view(torch.int32) != grad.view(torch.int32)
    assert torch.all(reduced.unsent[missing] == 0)
    return missing


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("n", [7, 20_000])
@pytest.mark.parametrize(("make", "bytes_of"), [
    (TopK, lambda k, entries: 8 * k),
    (lambda: TopK(index_dtype="int64"), lambda k, entries: 12 * k),
    (SampledTopK, lambda k, entries: 8 * entries),
    (RandomK, lambda k, entries: 4 * k),
    (lambda: RandomK(shared=False), lambda k, entries: 8 * k),
])  # fmt: skip
def test_entries_are_sent_whole_and_bytes_are_those_promised(make, bytes_of, n, density):
    for grad, reduced, contributed in run(make, [gradient(n, 0), gradient(n, 1)], density):
        k, entries = max(1, int(density * n)), int(sent(grad, reduced).count_nonzero())
        assert contributed == bytes_of(k, entries)
        if make is SampledTopK:
            assert min(k, 0.7 * k) <= entries <= 1.3 * k
        else:
            assert entries == k


@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 1), (10, 5), (10, 9), (10, 10), (5000, 4000)])
def test_positions_are_k_distinct_ones_in_order(n: int, k: int) -> None:
    index = positions(n, k, (1,))
    assert index.numel() == k and index.min() >= 0 and index.max() < n
    assert torch.all(index.diff() > 0)


@pytest.mark.parametrize("k", [3, 7])
def test_every_position_is_as_likely(k: int) -> None:
    draws = 4000
    counts = torch.zeros(10)
    for draw in range(draws):
        counts[positions(10, k, (draw,))] += 1
    expected = draws * k / 10
    assert (counts - expected).abs().max() < 5 * expected**0.5


def test_a_key_determines_the_stream_and_any_change_changes_it() -> None:
    keys = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0), (0, 0, 0, 0)]
    drawn = [tuple(positions(1000, 20, key).tolist()) for key in keys]
    assert len(set(drawn)) == len(keys)
    assert tuple(positions(1000, 20, keys[0]).tolist()) == drawn[0]
