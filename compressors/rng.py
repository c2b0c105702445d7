"""Random numbers determined by a key, independent of torch's global generators."""

import hashlib

import numpy as np
import torch
from torch import Tensor

from compressors import kernels
from compressors.workspace import workspace

STEP, FIRST, SECOND = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
HALF = np.uint64(32)
WORD_BITS = 64
CPU = torch.device("cpu")


def generator(*key: int) -> torch.Generator:
    """Return a CPU generator whose stream is determined by `key`, such as (seed, step, bucket)."""
    return torch.Generator().manual_seed(int.from_bytes(_digest(key), "little") >> 1)


def number(*key: int) -> int:
    """Return a number in [0, 2**31) determined by `key`."""
    return int.from_bytes(_digest(key), "little") >> 33


def positions(n: int, k: int, key: tuple[int, ...]) -> Tensor:
    """Draw k of n positions without replacement, every subset equally likely; int32 [k], ascending.

    Number i of a stream of 64-bit words is SplitMix64 of i and a hash of `key`. Scaled to n it is a
    position. Positions are marked in a bitmap until k of them are distinct, or n - k, which are
    then left out. Costs O(k) draws and n bits, and is equal on every machine. The result lies in
    this thread's memory.
    """
    few, invert = min(k, n - k), 2 * k > n
    word = int.from_bytes(_digest(key), "little")
    native = kernels.compiled()
    if native is None:
        marked = _marked(n, few, word)
        return torch.from_numpy(np.flatnonzero(marked != invert).astype(np.int32))
    bitmap = workspace("marked", -(-n // WORD_BITS), torch.int64, CPU).numpy().view(np.uint64)
    native.scatter.mark(n, few, word, bitmap)
    index = workspace("positions", k + native.scatter.AHEAD, torch.int32, CPU)
    native.scatter.positions(bitmap, invert, index.numpy())
    return index[:k]


def _marked(n: int, count: int, word: int) -> np.ndarray:
    """Return a mask, bool [n], with `count` true elements."""
    marked, number, missing = np.zeros(n, bool), 0, count
    while missing:  # as many more: never too many
        drawn = _positions(np.arange(number, number + missing, dtype=np.uint64), word, n)
        marked[drawn] = True
        number, missing = number + missing, count - int(np.count_nonzero(marked))
    return marked


def _positions(numbers: np.ndarray, word: int, n: int) -> np.ndarray:
    x = numbers * STEP + np.uint64(word)
    x = (x ^ x >> np.uint64(30)) * FIRST
    x = (x ^ x >> np.uint64(27)) * SECOND
    x ^= x >> np.uint64(31)
    high, low = x >> HALF, x & np.uint64((1 << 32) - 1)
    return (high * np.uint64(n) + (low * np.uint64(n) >> HALF) >> HALF).astype(np.int64)


def _digest(key: tuple[int, ...]) -> bytes:
    return hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
