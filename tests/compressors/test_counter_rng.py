"""Numbers by position: those of the hash as written for unsigned words, and uniform."""

import hashlib

import numpy as np
import pytest
import torch

from compressors.counter_rng import BITS, CHUNK, uniform

CPU = torch.device("cpu")


def by_unsigned_words(n: int, key: tuple[int, ...]) -> np.ndarray:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    first, second = np.frombuffer(digest, "<u4")
    x = np.arange(-(-n // 2), dtype=np.uint32) * np.uint32(0x9E3779B1) ^ first
    x = (x ^ x >> 15) * np.uint32(0x846CA68B) ^ second
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x ^= x >> 15
    return np.stack([x & 0xFFFF, x >> 16], 1).flatten()[:n]


@pytest.mark.parametrize("n", [0, 1, 1001, CHUNK, 2 * CHUNK + 3])
@pytest.mark.parametrize("key", [(0,), (3, 4, 1, 2)])
def test_numbers_are_those_of_the_hash(n: int, key: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(uniform(n, key, CPU).numpy(), by_unsigned_words(n, key))


def test_a_number_depends_on_its_position_only() -> None:
    assert torch.equal(uniform(10, (1, 2), CPU), uniform(CHUNK + 1, (1, 2), CPU)[:10])


@pytest.mark.parametrize("key", [(0, 0, 0, 0), (0, 1, 0, 0), (7, 100, 3, 63)])
def test_they_are_uniform(key: tuple[int, ...]) -> None:
    n, bins = 1_000_000, 256
    numbers = uniform(n, key, CPU) / 2.0**BITS
    assert 0 <= numbers.min() and numbers.max() < 1
    counts = torch.histc(numbers, bins, 0, 1)
    chi_squared = float((counts - n / bins).square().sum() / (n / bins))
    assert abs(chi_squared - (bins - 1)) < 5 * (2 * (bins - 1)) ** 0.5
    middle = (1 - 2.0**-BITS) / 2
    assert abs(float(numbers.double().mean()) - middle) < 5 * (12 * n) ** -0.5


def centered(n: int, key: tuple[int, ...]) -> torch.Tensor:
    return (uniform(n, key, CPU) + 0.5) / 2.0**BITS - 0.5


@pytest.mark.parametrize("other", [(0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0)])
def test_streams_of_unlike_keys_and_neighbours_are_unrelated(other: tuple[int, ...]) -> None:
    n = 100_000
    first = centered(n, (0, 0, 0, 0))
    pairs = [(first, centered(n, other))]
    pairs += [(first[:-lag], first[lag:]) for lag in (1, 2, 512)]
    for one, two in pairs:
        assert abs(float((one * two).mean()) * 12) < 5 * n**-0.5
