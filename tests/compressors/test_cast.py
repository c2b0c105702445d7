"""16-bit gradients: the mean numpy's float16 gives, and no overflow that is not told."""

import numpy as np
import pytest
import torch

from compressors.cast import Cast
from tests.compressors.reductions import gradient, run


@pytest.mark.parametrize("n", [1, 7, 1000])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_two_bytes_an_element(dtype: str, n: int) -> None:
    for outcome in run(lambda: Cast(dtype), [gradient(n, 0), gradient(n, 1)], 0.1):
        assert outcome.contributed_bytes == 2 * n


def test_the_mean_is_that_of_numpys_half_precision() -> None:
    grads = [gradient(1000, rank) for rank in range(4)]
    halves = [(grad.numpy() / np.float32(4)).astype(np.float16) for grad in grads]
    total = halves[0] + halves[1] + halves[2] + halves[3]  # float16 at every addition
    for rank, (grad, (mean, unsent), _) in enumerate(run(Cast, grads, 1.0)):
        np.testing.assert_array_equal(mean.numpy(), total.astype(np.float32))
        lost = grad.double().numpy() - 4 * halves[rank].astype(np.float64)
        np.testing.assert_allclose(unsent.numpy(), lost, rtol=0, atol=1e-9)


def test_division_comes_first_so_that_large_gradients_have_a_mean() -> None:
    grads = [torch.full((3,), 64_000.0) for _ in range(8)]
    assert run(Cast, grads, 1.0)[0].reduced.mean.tolist() == [64_000.0] * 3


def test_what_underflows_is_unsent() -> None:
    ((_, (mean, unsent), _),) = run(Cast, [torch.tensor([1.0, 1e-9])], 1.0)
    assert mean.tolist() == [1.0, 0.0]
    assert unsent.tolist() == [0.0, torch.tensor(1e-9).item()]


@pytest.mark.parametrize("size", [1, 3])
def test_a_gradient_that_would_overflow_is_refused(size: int) -> None:
    grads = [torch.tensor([1.0, -65_600.0])] * size
    with pytest.raises(OverflowError, match="finite as float16 summed over .* got 65600; take bfl"):
        run(Cast, grads, 1.0)
    mean = run(lambda: Cast("bfloat16"), grads, 1.0)[0].reduced.mean
    assert mean[1].item() == pytest.approx(-65_600, rel=0.01)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 33])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_largest_gradient_allowed_does_not_overflow(dtype: str, size: int) -> None:
    cast = Cast(dtype)
    allowed = torch.tensor([cast.largest / (1 + cast.rounding) ** size])
    largest = torch.nextafter(allowed, torch.zeros(1))
    assert run(lambda: Cast(dtype), [largest] * size, 1.0)[0].reduced.mean.isfinite().all()


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="dtype must be float16 or bfloat16, got 'float8'"):
        Cast("float8")
