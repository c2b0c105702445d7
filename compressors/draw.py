"""Random numbers that are a function of a key, apart from the global generators of torch."""

import hashlib

import numpy as np
import torch
from torch import Tensor


def generator(*key: int) -> torch.Generator:
    """A CPU generator whose stream is determined by `key`, such as (seed, step, bucket)."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def positions(n: int, k: int, source: torch.Generator) -> Tensor:
    """Positions among n without replacement, every subset equally likely; int64 [k], ascending.

    Drawn with replacement into a bitmap and topped up by what collided: uniform by symmetry, and
    costs O(k) draws and n bytes; a permutation of n takes 20 times as long at k = n / 100.
    """
    chosen = torch.zeros(n, dtype=torch.bool)
    few = min(k, n - k)
    chosen.index_fill_(0, _draw(n, few, source), True)
    missing = few - int(np.count_nonzero(chosen.numpy()))
    while missing:
        more = _draw(n, missing, source).unique()
        more = more[~chosen[more]]
        chosen.index_fill_(0, more, True)
        missing -= more.numel()
    if few < k:
        chosen.logical_not_()
    return torch.from_numpy(np.flatnonzero(chosen.numpy()))


def _draw(n: int, count: int, source: torch.Generator) -> Tensor:
    return torch.randint(n, (count,), generator=source)
