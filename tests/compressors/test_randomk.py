"""Positions drawn without replacement: distinct, uniform, and equal where they have to be."""

import pytest
import torch

from compressors.rng import positions


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
