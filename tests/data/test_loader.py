"""Order and shares of the batches."""

from collections import Counter
from itertools import islice

import pytest
import torch

from harness.workloads.data.loader import Batches, shard
from harness.workloads.data.samples import InMemory, Loaded


def numbered(count: int) -> InMemory:
    return InMemory(torch.arange(count * 1.0), torch.arange(count))


def epoch(samples: InMemory, batch_size: int, rank: int, size: int, skip: int = 0) -> list[int]:
    """Samples that one rank sees in the epoch after `skip` epochs."""
    batches = Batches(samples, batch_size, rank, size, seed=1)
    stream, steps = iter(batches), batches.steps_per_epoch
    seen = [labels.tolist() for _, labels in islice(stream, (skip + 1) * steps)]
    return sum(seen[skip * steps :], [])


@pytest.mark.parametrize(("count", "batch_size", "size"), [(48, 4, 3), (50, 4, 3), (7, 7, 1)])
def test_ranks_share_an_epoch_without_overlap(count, batch_size, size):
    seen = Counter(
        sample for rank in range(size) for sample in epoch(numbered(count), batch_size, rank, size)
    )
    assert max(seen.values()) == 1
    assert len(seen) == count - count % (batch_size * size)


def test_every_epoch_is_shuffled_anew():
    first, second = (epoch(numbered(32), 8, 0, 1, skip) for skip in (0, 1))
    assert first != second and sorted(first) == sorted(second) == list(range(32))


def test_the_same_global_batch_trains_at_any_number_of_workers():
    def global_batch(size: int) -> set[int]:
        ranks = [iter(Batches(numbered(64), 16 // size, rank, size, 0)) for rank in range(size)]
        return {sample for stream in ranks for sample in next(stream)[1].tolist()}

    assert global_batch(1) == global_batch(2) == global_batch(8)


def test_inputs_and_labels_belong_together():
    inputs, labels = next(iter(Batches(numbered(32), 8, 0, 1, 0)))
    assert torch.equal(inputs.long(), labels)


@pytest.mark.parametrize(("count", "size"), [(1000, 3), (2, 4), (512, 1)])
def test_shares_of_a_test_set_are_disjoint_and_complete(count, size):
    shares = [shard(numbered(count), rank, size) for rank in range(size)]
    for _ in range(2):  # an iteration does not use a share up
        seen = [sample for share in shares for _, labels in share for sample in labels.tolist()]
        assert sorted(seen) == list(range(count))


class Noisy(torch.utils.data.Dataset):
    """Draws from torch's generator, as torchvision's transforms do."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(2) + index, index


def test_loaded_batches_do_not_depend_on_the_number_of_processes():
    def two_epochs(workers: int) -> list[torch.Tensor]:
        stream = iter(Batches(Loaded(Noisy(), workers), 3, 0, 2, 0))
        return [next(stream)[0] for _ in range(4)]

    alone = two_epochs(0)
    assert torch.equal(torch.cat(alone), torch.cat(two_epochs(2)))
    fractions = torch.cat(alone).frac()
    assert len(fractions.unique()) == fractions.numel()  # no draw is repeated in the next epoch


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Batches(numbered(10), 4, 0, 3, 0), r"batch_size must be in \[1, 3\] .* got 4"),
    (lambda: Batches(numbered(10), 0, 0, 1, 0), r"batch_size must be in \[1, 10\] .* got 0"),
    (lambda: Batches(numbered(10), 1, 2, 2, 0), r"rank must be in \[0, 2\), got 2"),
    (lambda: shard(numbered(10), -1, 2), r"rank must be in \[0, 2\), got -1"),
])  # fmt: skip
def test_refuses_with_value_and_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()
