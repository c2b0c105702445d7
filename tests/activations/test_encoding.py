"""Masks on the wire: what is sent comes out, and takes the bytes that were promised."""

import pytest
import torch

from compressors.activations.base import Piece
from compressors.activations.encoding import decode, encode, values_bytes
from compressors.activations.rows import entries

SHAPES = [(1, 1), (3, 5), (4, 64), (16, 16), (7, 200), (32, 256), (300, 256)]
SHARES = [0.0, 0.01, 0.1, 0.5, 1.0]


def piece(shape: tuple[int, int], share: float) -> Piece:
    source = torch.Generator().manual_seed(shape[0])
    rows = torch.randn(shape, generator=source)
    mask = torch.rand(shape, generator=source) < share
    return Piece(entries(rows, mask), mask)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", SHARES)
def test_what_is_sent_arrives(shape: tuple[int, int], share: float) -> None:
    sent = piece(shape, share)
    bits, *rest = encode(sent)
    values = torch.cat([torch.empty(0, dtype=torch.uint8), *rest])
    got = decode(bits, values, shape)
    assert sent.mask is not None and got.mask is not None
    assert torch.equal(got.mask, sent.mask) and torch.equal(got.values, sent.values)
    n, k = shape[0] * shape[1], int(sent.mask.sum())
    assert bits.numel() == -(-n // 8)
    assert values.numel() == values_bytes(bits, n) == 4 * k


def test_without_a_mask_there_are_values_alone() -> None:
    [message] = encode(Piece(torch.arange(5.0)))
    assert torch.equal(message.view(torch.float32), torch.arange(5.0))
