"""Sign methods and packed codes against a few lines of float64, and their bytes."""

import numpy as np
import pytest
import torch

from compressors.ef_signsgd import EFSignSGD
from compressors.kernels.gpu import pack_bits, unpack_bits
from compressors.packing import (
    add_signs_,
    pack,
    pack_signs,
    packed_bytes,
    unpack,
)
from compressors.signsgd import SignSGD
from tests.compressors.reductions import KINDS, gradient, run, shapes_of


def signs(x: torch.Tensor) -> np.ndarray:
    return np.where(x.numpy() >= 0, 1.0, -1.0)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 1000])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_vote_is_the_sign_of_the_sum_of_signs(size: int, n: int) -> None:
    grads = [gradient(n, rank).round() for rank in range(size)]  # has zeros
    total = sum(signs(grad) for grad in grads)
    for _, (mean, unsent), contributed in run(lambda: SignSGD(0.5), grads, 0.1):
        np.testing.assert_array_equal(mean.numpy(), np.where(total >= 0, 0.5, -0.5))
        assert unsent is None
        assert contributed == -(-(n + 1) // 8)


def test_a_tie_is_positive() -> None:
    grads = [torch.tensor([1.0, -3.0, 0.0]), torch.tensor([-1.0, -1.0, -1.0])]
    assert run(SignSGD, grads, 1.0)[0].reduced.mean.tolist() == [1.0, -1.0, 1.0]


@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 1000])
def test_signs_times_mean_magnitude(layerwise: bool, n: int) -> None:
    grads = [gradient(n, rank) for rank in range(3)]
    sizes = [int(np.prod(shape)) for shape in shapes_of(n).values()] if layerwise else [n]
    ends = np.cumsum(sizes)[:-1]

    def sent(grad: torch.Tensor) -> np.ndarray:
        layers = np.split(grad.double().numpy(), ends)
        return signs(grad) * np.concatenate([np.abs(one).mean().repeat(one.size) for one in layers])

    mean = sum(sent(grad) for grad in grads) / 3
    outcomes = run(lambda: EFSignSGD(layerwise), grads, 0.1)
    for grad, reduced, contributed in outcomes:
        np.testing.assert_allclose(reduced.mean.numpy(), mean, rtol=1e-5, atol=1e-6)
        unsent = grad.double().numpy() - sent(grad)
        np.testing.assert_allclose(reduced.unsent.numpy(), unsent, rtol=1e-5, atol=1e-6)
        assert contributed == sum(-(-size // 8) + 4 for size in sizes)


@pytest.mark.parametrize("kind", ["one hot", "equal", "ties", "heavy-tailed"])
def test_what_is_left_is_smaller_by_what_the_theory_says(kind: str) -> None:
    """Its square is that of the gradient less ||g||_1^2 / n, so that residuals stay bounded."""
    ((grad, (_, unsent), _),) = run(EFSignSGD, [KINDS[kind](1)], 1.0)
    exact = grad.double()
    left = exact.square().sum() - exact.abs().sum() ** 2 / grad.numel()
    torch.testing.assert_close(unsent.double().square().sum(), left, rtol=1e-5, atol=1e-5)


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
