"""Exact selection against sorting everything, on inputs made to mislead a sampled bound."""

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.topk_select import (
    CHUNK,
    FEWEST,
    SAMPLE,
    SHARE,
    above,
    bits,
    largest,
    runs,
    sample,
)

SIZES = (1, 2, 17, 16_384, SAMPLE, CHUNK + 5, 3 * SAMPLE + 1)


def by_sorting(x: Tensor, k: int) -> Tensor:
    """The k largest magnitudes, of equal ones the lowest index, ascending; NaN is the largest."""
    keys = -bits(x).numpy().astype(np.int64)
    return torch.from_numpy(np.sort(np.argsort(keys, kind="stable")[:k]))


def normal(n: int, source: torch.Generator) -> Tensor:
    return torch.randn(n, generator=source)


def layered(n: int, source: torch.Generator) -> Tensor:
    """A few runs of very different scale."""
    return normal(n, source) * (8 * normal(7, source)).exp().repeat_interleave(-(-n // 7))[:n]


def off_the_sample(n: int, source: torch.Generator) -> Tensor:
    """Large exactly where the evenly spaced sample looks: the first bound is far too high."""
    x, positions = normal(n, source), torch.arange(n, dtype=torch.float32)
    seen = sample(positions, runs(n, min(SAMPLE, max(FEWEST, n // SHARE)))).view(torch.float32)
    x[seen.long()] *= 1000
    return x


def not_finite(n: int, source: torch.Generator) -> Tensor:
    x = normal(n, source)
    for value in (float("nan"), -float("nan"), float("inf"), -float("inf")):
        x[torch.randint(n, (1 + n // 50,), generator=source)] = value
    return x


INPUTS = {
    "normal": normal,
    "heavy-tailed": lambda n, source: normal(n, source) * (3 * normal(n, source)).exp(),
    "layered": layered,
    "zeros": lambda n, source: torch.zeros(n),
    "equal": lambda n, source: torch.full((n,), -2.0),
    "few values": lambda n, source: normal(n, source).round(),
    "mostly zeros": lambda n, source: normal(n, source) * (normal(n, source) > 3),
    "signed zeros": lambda n, source: normal(n, source).sign() * 0.0,
    "ascending": lambda n, source: torch.arange(n, dtype=torch.float32),
    "subnormal": lambda n, source: normal(n, source) * 1e-41,
    "off the sample": off_the_sample,
    "not finite": not_finite,
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", INPUTS)
def test_largest_equals_sorting(kind: str, n: int) -> None:
    source = torch.Generator().manual_seed(n)
    x = INPUTS[kind](n, source)
    for k in sorted({1, max(1, n // 1000), max(1, n // 100), max(1, n // 3), n}):
        assert torch.equal(largest(x, k), by_sorting(x, k)), k


def test_largest_has_the_values_of_torch_topk() -> None:
    for seed in range(20):
        x = normal(40_000, torch.Generator().manual_seed(seed))
        expected = x.abs().topk(400).values
        assert torch.equal(x[largest(x, 400)].abs().sort(descending=True).values, expected)


def test_above_is_strict_and_ascending() -> None:
    x = torch.tensor([1.0, -2.0, 2.0, 0.0, -3.0, float("nan")])
    two = int(bits(torch.tensor(2.0)))
    assert above(x, two).tolist() == [4, 5]
    assert above(x, two - 1).tolist() == [1, 2, 4, 5]
    assert above(x, 0).tolist() == [0, 1, 2, 4, 5]


@pytest.mark.parametrize(("n", "size"), [(1, 5), (100, 100), (1000, 7), (5000, 64), (10, 9)])
def test_a_sample_has_its_size_and_any_start(n: int, size: int) -> None:
    x = torch.arange(n, dtype=torch.float32)
    for start in (0, 1, 12345):
        drawn = sample(x, runs(n, size, start))
        assert min(n, size) <= drawn.numel() + 1 <= n + 1
