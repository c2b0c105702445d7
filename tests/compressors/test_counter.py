"""Numbers by position: those of the hash as written for unsigned words, and uniform."""

import hashlib

import numpy as np
import pytest
import torch

from compressors.counter import CHUNK, uniform

CPU = torch.device("cpu")


def by_unsigned_words(n: int, key: tuple[int, ...]) -> np.ndarray:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    first, second = np.frombuffer(digest, "<u4")
    x = np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B1) ^ first
    x = (x ^ x >> 15) * np.uint32(0x846CA68B) ^ second
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    return ((x ^ x >> 15) >> 8) / 2**24


@pytest.mark.parametrize("n", [0, 1, 1000, CHUNK, 2 * CHUNK + 3])
@pytest.mark.parametrize("key", [(0,), (3, 4, 1, 2)])
def test_numbers_are_those_of_the_hash(n: int, key: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(uniform(n, key, CPU).numpy(), by_unsigned_words(n, key))


def test_a_number_depends_on_its_position_only() -> None:
    assert torch.equal(uniform(10, (1, 2), CPU), uniform(CHUNK + 1, (1, 2), CPU)[:10])


@pytest.mark.parametrize("key", [(0, 0, 0, 0), (0, 1, 0, 0), (7, 100, 3, 63)])
def test_they_are_uniform(key: tuple[int, ...]) -> None:
    n, bins = 1_000_000, 256
    numbers = uniform(n, key, CPU)
    assert 0 <= numbers.min() and numbers.max() < 1
    counts = torch.histc(numbers, bins, 0, 1)
    chi_squared = float((counts - n / bins).square().sum() / (n / bins))
    assert abs(chi_squared - (bins - 1)) < 5 * (2 * (bins - 1)) ** 0.5
    assert abs(float(numbers.double().mean()) - 0.5) < 5 * (12 * n) ** -0.5


@pytest.mark.parametrize("other", [(0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0)])
def test_streams_of_unlike_keys_and_neighbours_are_unrelated(other: tuple[int, ...]) -> None:
    n = 100_000
    first = uniform(n, (0, 0, 0, 0), CPU) - 0.5
    pairs = [(first, uniform(n, other, CPU) - 0.5)]
    pairs += [(first[:-lag], first[lag:]) for lag in (1, 2, 512)]
    for one, two in pairs:
        assert abs(float((one * two).mean()) * 12) < 5 * n**-0.5
