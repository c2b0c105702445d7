"""The memory of a bucket: gradient and residual are added once, whoever reads their sum."""

from math import inf, nan, prod

import pytest
import torch
from torch import Tensor

from compressors.base import Bucket
from compressors.buffers import Buffers
from compressors.fused import add_and_take_largest, add_cast_, add_scaled, scatter
from compressors.matmul import left_factor_, right_factor_
from compressors.packing import add_pack_signs_
from compressors.sparse import add_, erase_, take_out_
from compressors.stochastic import add_measure_
from compressors.topk_select import kth_largest, largest, take_largest_
from harness.engine.exchange.feedback import Residual
from tests.compressors.reductions import Replica, build, gradient, shapes_of, variants
from tests.compressors.threads import ThreadWorkers, together

N = 5003


def fed(n: int = N) -> tuple[Buffers, Tensor, Tensor]:
    """Buffers whose mean may go to the gradient, the gradient, and the sum that they will have."""
    gradient_, residual = gradient(n, 0), gradient(n, 1)
    return Buffers(gradient_, residual, gradient_), gradient_, gradient_ + residual


class ReadBefore:
    """A compressor, of a bucket that somebody has read."""

    def __init__(self, compressor) -> None:
        self.compressor = compressor

    def reduce(self, bucket: Bucket, density: float, workers: ThreadWorkers):
        assert bucket.grad.numel() == sum(map(prod, bucket.shapes))
        return self.compressor.reduce(bucket, density, workers)


@pytest.mark.parametrize("feeds_back", [True, False])
@pytest.mark.parametrize("variant", [name for name in variants() if "covap" not in name])
def test_a_fused_step_has_the_bits_of_that_step_on_the_sum(variant, feeds_back):
    def work(workers: ThreadWorkers) -> list[Tensor]:
        both = []
        for read in (False, True):
            made = build(variant)
            replica = Replica(workers, ReadBefore(made) if read else made, in_place=True)
            if feeds_back:
                replica.feedback = Residual()
            for step in range(3):
                grad = gradient(N, 10 * step + workers.rank)
                both.append(replica.reduce(grad, 0.05, step).reduced.mean)
        return both

    for means in together(2, work):
        assert all(torch.equal(*pair) for pair in zip(means[:3], means[3:], strict=True))


def test_the_sum_is_made_once():
    buffers, _, expected = fed()
    assert torch.equal(buffers.grad, expected) and torch.equal(buffers.grad, expected)
    entries = add_and_take_largest(buffers, 7)
    assert torch.equal(buffers.grad.index_add(0, entries.index, entries.values), expected)


def test_parts_are_added_once_each_in_any_order():
    buffers, _, expected = fed()
    first, second, third = buffers.split([3, 0, N - 3])
    assert torch.equal(third.grad, expected[3:]) and not torch.equal(first.total, expected[:3])
    assert torch.equal(buffers.grad, expected)
    assert second.n == 0 and torch.equal(first.grad, expected[:3])


@pytest.mark.parametrize("whole", [True, False])
def test_where_entries_go_all_else_is_zero(whole):
    """In the memory of the gradient, which the pass has cleared, or of which it has a part."""
    buffers, gradient_, _ = fed()
    parts = [buffers] if whole else buffers.split([1000, N - 1000])[:1]
    for part in parts:
        add_and_take_largest(part, 7)
    entries = torch.tensor([2.0]), torch.tensor([N - 1], dtype=torch.int32)
    if not whole:
        assert buffers.grad.numel() == N
    for _ in range(2):  # the second time it holds the first mean
        mean = scatter(buffers, [entries])
        assert mean.data_ptr() == gradient_.data_ptr()
        assert mean[N - 1] == 2 and int(mean.count_nonzero()) == 1


def test_a_residual_is_scaled_before_anybody_reads_the_sum():
    buffers, gradient_, total = fed()
    expected = gradient_ + 0.5 * (total - gradient_)
    torch.testing.assert_close(add_scaled(buffers, 0.5), expected)
    with pytest.raises(AssertionError):
        add_scaled(buffers, 0.5)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("read", [lambda b: b.grad, lambda b: add_and_take_largest(b, 3)])
def test_whoever_reads_first_finds_what_is_not_finite(read, bad):
    """In the gradient or, where it has been added and cleared, in the sum."""
    finite: list[bool] = []
    gradient_ = gradient(N, 0)
    gradient_[11] = bad

    def look(x: Tensor) -> None:
        finite.append(bool(x.isfinite().all()))

    read(Buffers(gradient_, gradient(N, 1), gradient_, look))
    assert False in finite


def test_the_parameters_of_a_bucket_are_views_of_the_sum():
    buffers, _, expected = fed()
    shapes = [torch.Size(shape) for shape in shapes_of(N).values()]
    bucket = Bucket(0, 0, tuple(shapes_of(N)), shapes, buffers)
    assert [each.shape for each in bucket.gradients] == shapes
    assert torch.equal(torch.cat([each.flatten() for each in bucket.gradients]), expected)
    assert bucket.gradients[0].data_ptr() == bucket.grad.data_ptr()


PLACES = torch.tensor([1, 2], dtype=torch.int32)
UNLIKE = {"of one element": torch.zeros(1),
          "of another shape": torch.zeros(64, 64),
          "of another type": torch.zeros(4096, dtype=torch.float64),
          "elsewhere": torch.zeros(4096, device="meta")}  # fmt: skip


@pytest.mark.parametrize("how", UNLIKE)
def test_a_residual_is_like_the_gradient(how: str) -> None:
    """A kernel trusts one size for both: it wrote past a residual of one element."""
    residual, gradient = UNLIKE[how], torch.ones(4096)
    steps = {
        "buffers": lambda: Buffers(gradient, residual),
        "largest": lambda: take_largest_(residual, 1, gradient),
        "sum": lambda: add_(gradient, residual, False),
        "signs": lambda: add_pack_signs_(gradient, residual, torch.zeros(512).byte()),
        "measure": lambda: add_measure_(gradient, residual),
        "cast": lambda: add_cast_(gradient, residual, 1, torch.empty(4096).half(), False),
        "factor": lambda: left_factor_(gradient.view(32, 128), torch.ones(1, 128), residual),
    }
    for name, step in steps.items():
        with pytest.raises(ValueError, match=r"float\d\d \[.*\] on .* cannot be added") as told:
            step()
        assert "\n" not in str(told.value), name


ROOMS = {
    "out must have 2 elements": lambda: take_out_(torch.ones(9), PLACES, out=torch.ones(1)),
    "packed must have 8 elements": lambda: add_pack_signs_(
        torch.ones(64), None, torch.zeros(1).byte()
    ),
    "wire must have 9 elements": lambda: add_cast_(
        torch.ones(9), None, 1, torch.ones(1).half(), True
    ),
    r"k must be in \[1, 9\], got 10": lambda: largest(torch.ones(9), 10),
    r"k must be in \[1, 9\], got 0": lambda: kth_largest(torch.ones(9), 0),
    "index 10 is out of bounds": lambda: erase_(torch.ones(9), PLACES * 10),
    r"right factor \[1, 3\] does not fit a matrix \[4, 5\]": lambda: left_factor_(
        torch.ones(4, 5), torch.ones(1, 3)
    ),
    r"left factor \[1, 3\] does not fit a matrix \[4, 5\]": lambda: right_factor_(
        torch.ones(4, 5), torch.ones(1, 3)
    ),
}


@pytest.mark.parametrize("said", ROOMS)
def test_what_a_kernel_reads_or_fills_is_large_enough(said: str) -> None:
    with pytest.raises((ValueError, IndexError), match=said):
        ROOMS[said]()
