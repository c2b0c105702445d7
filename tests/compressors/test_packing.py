"""Codes survive packing whatever their number, and take the bits they need."""

import numpy as np
import pytest
import torch

from compressors.kernels.gpu import pack_bits, unpack_bits
from compressors.packing import (
    add_signs_,
    pack,
    pack_signs,
    packed_bytes,
    unpack,
)


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 1001])
def test_codes_return_and_take_the_bytes_promised(width: int, n: int) -> None:
    source = torch.Generator().manual_seed(n)
    codes = torch.randint(1 << width, (n,), generator=source, dtype=torch.uint8)
    before = codes.clone()
    packed = pack(codes, width)
    assert packed.dtype == torch.uint8
    assert packed.numel() == packed_bytes(n, width) == int(np.ceil(width * n / 8))
    assert torch.equal(unpack(packed, width, n), before)
    assert torch.equal(codes, before)


def test_the_bits_of_a_byte_are_in_order() -> None:
    assert pack(torch.tensor([1, 0, 0, 0, 0, 0, 0, 1, 1], dtype=torch.uint8), 1).tolist() == [
        129,
        1,
    ]
    assert pack(torch.tensor([1, 2, 3, 0], dtype=torch.uint8), 2).tolist() == [0b0110_0101]


@pytest.mark.parametrize("n", [0, 1, 8, 9, 100])
def test_a_gpus_way_gives_the_same_bytes(n: int) -> None:
    bits = torch.randint(2, (n,), generator=torch.Generator().manual_seed(n), dtype=torch.uint8)
    assert torch.equal(pack_bits(bits), pack(bits, 1))
    assert torch.equal(unpack_bits(pack(bits, 1))[:n], bits)


def test_signs_of_zeros_are_positive_and_are_added_with_their_scale() -> None:
    x = torch.tensor([1.0, -1e-45, 0.0, -0.0, -7.0])
    total = torch.full((5,), 10.0)
    add_signs_(total, pack_signs(x), torch.tensor(2.0))
    assert total.tolist() == [12, 8, 12, 12, 8]
