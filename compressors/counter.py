"""Uniform random numbers by position: number i is a hash of (key, i), whatever else is drawn.

The hash is rounds of multiply and shift (the constants of C. Wellons' lowbias32, after a golden
ratio step), with half of the key before each; the same bits on the CPU and on a GPU.
"""

import hashlib

import torch
from torch import Tensor

CHUNK = 1 << 16  # elements that stay in a core's cache through all the passes
GOLDEN, FIRST, SECOND = 0x9E3779B1, 0x846CA68B, 0x7FEB352D
UNIT = 2.0**-24  # spacing of the numbers: those that float32 holds exactly


def uniform(n: int, key: tuple[int, ...], device: torch.device) -> Tensor:
    """float32 [n] in [0, 1), a function of `key`, such as (seed, step, bucket, rank)."""
    first, second = halves(key)
    numbers = torch.empty(n, device=device)
    for number, part in enumerate(numbers.split(CHUNK)):
        x = torch.arange(part.numel(), dtype=torch.int32, device=device).add_(number * CHUNK)
        x.mul_(_signed(GOLDEN)).bitwise_xor_(_signed(first))
        _mix_(x, 15, FIRST)
        x.bitwise_xor_(_signed(second))
        _mix_(x, 16, SECOND)
        x.bitwise_xor_(_shifted(x, 15))
        torch.mul(_shifted(x, 8), UNIT, out=part)
    return numbers


def halves(key: tuple[int, ...]) -> tuple[int, int]:
    """Two words of 32 bits that `key` is hashed to."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def _mix_(x: Tensor, shift: int, factor: int) -> None:
    x.bitwise_xor_(_shifted(x, shift)).mul_(_signed(factor))


def _shifted(x: Tensor, places: int) -> Tensor:
    """`x` as unsigned numbers, shifted right."""
    return x.bitwise_right_shift(places).bitwise_and_((1 << 32 - places) - 1)


def _signed(word: int) -> int:
    """The int32 with the bits of an unsigned word; torch multiplies modulo 2**32."""
    return word - (1 << 32) if word >> 31 else word
