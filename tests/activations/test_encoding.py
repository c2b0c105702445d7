"""Masks on the wire: what is sent comes out, and takes the bytes that were promised."""

import pytest
import torch

from compressors.activations.base import Piece
from compressors.activations.encoding import ENCODINGS, Encoding, width
from compressors.activations.rows import entries

SHAPES = [(1, 1), (3, 5), (4, 64), (16, 16), (7, 200), (32, 256), (300, 256)]
SHARES = [0.0, 0.01, 0.1, 0.5, 1.0]


def piece(shape: tuple[int, int], share: float) -> Piece:
    source = torch.Generator().manual_seed(shape[0])
    rows = torch.randn(shape, generator=source)
    mask = torch.rand(shape, generator=source) < share
    return Piece(entries(rows, mask), mask)


def carried(encoding: Encoding, sent: Piece, shape: tuple[int, int]) -> tuple[Piece, int]:
    """What arrives of `sent`, by the lengths that the receiver expects, and its bytes."""
    n, (first, *rest) = shape[0] * shape[1], encoding.encode(sent)
    second = torch.cat([torch.empty(0, dtype=torch.uint8), *rest])
    assert first.numel() == encoding.first_bytes(n)
    assert second.numel() == encoding.second_bytes(first, n)
    return encoding.decode(first, second, shape), first.numel() + second.numel()


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", SHARES)
def test_what_is_sent_arrives(name: str, shape: tuple[int, int], share: float) -> None:
    sent = piece(shape, share)
    got, nbytes = carried(Encoding(name), sent, shape)
    assert sent.mask is not None and got.mask is not None
    assert torch.equal(got.mask, sent.mask) and torch.equal(got.values, sent.values)
    n, k = shape[0] * shape[1], int(sent.mask.sum())
    bitmap, index = -(-n // 8), width(n) * k
    where = {"bitmap": bitmap, "index": 4 + index, "auto": 4 + (min(bitmap, index) if k else 0)}
    assert nbytes == 4 * k + where[name]


def test_without_a_mask_there_are_values_alone() -> None:
    [message] = Encoding().encode(Piece(torch.arange(5.0)))
    assert torch.equal(message.view(torch.float32), torch.arange(5.0))


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="encoding must be one of bitmap, index, auto, got 'zip'"):
        Encoding("zip")
