"""Uniform random numbers by position: number i is 16 bits of a hash of (key, i // 2).

The hash is rounds of multiply and shift (the constants of C. Wellons' lowbias32, after a golden
ratio step), with half of the key before each. Even numbers are its lower half, odd ones the upper.
CPU and GPU give the same bits, whatever else is drawn.
"""

import hashlib

import torch
from torch import Tensor

CHUNK = 1 << 16  # elements that stay in a core's cache through all the passes
GOLDEN, FIRST, SECOND = 0x9E3779B1, 0x846CA68B, 0x7FEB352D
BITS = 16  # of a number


def uniform(n: int, key: tuple[int, ...], device: torch.device) -> Tensor:
    """Return int32 [n] in [0, 2**BITS), determined by `key`, such as (seed, step, bucket, rank)."""
    first, second = halves(key)
    numbers = torch.empty(n, dtype=torch.int32, device=device)
    for chunk, part in enumerate(numbers.split(CHUNK)):
        x = torch.arange(-(-part.numel() // 2), dtype=torch.int32, device=device)
        x.add_(chunk * (CHUNK // 2)).mul_(_signed(GOLDEN)).bitwise_xor_(_signed(first))
        _mix_(x, 15, FIRST)
        x.bitwise_xor_(_signed(second))
        _mix_(x, 16, SECOND)
        x.bitwise_xor_(_shifted(x, 15))
        part.copy_(x.view(torch.int16)[: part.numel()])
    return numbers.bitwise_and_((1 << BITS) - 1)


def halves(key: tuple[int, ...]) -> tuple[int, int]:
    """Return the two words of 32 bits that `key` is hashed to."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def _mix_(x: Tensor, shift: int, factor: int) -> None:
    x.bitwise_xor_(_shifted(x, shift)).mul_(_signed(factor))


def _shifted(x: Tensor, places: int) -> Tensor:
    """Return `x` shifted right as unsigned numbers."""
    return x.bitwise_right_shift(places).bitwise_and_((1 << 32 - places) - 1)


def _signed(word: int) -> int:
    """Return the int32 with the bits of an unsigned word. torch multiplies modulo 2**32."""
    return word - (1 << 32) if word >> 31 else word
