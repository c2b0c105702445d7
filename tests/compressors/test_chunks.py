"""Chunks: which elements they have, their largest entries and where these are; on either path."""

import numpy as np
import pytest
import torch
from torch import Size, Tensor

from compressors import kernels
from compressors.chunks import (
    Chunks,
    add_find_,
    chunks_of,
    pack_positions,
    positions,
    unpack_positions,
)
from compressors.dct import transform
from tests.compressors.reductions import bits, gradient

SHAPES = {"one": [(64, 64)], "by bounds": [(200, 128), (7,), (64, 4160)],
          "kernels": [(128, 3, 3, 3), (130, 192), (1,), (4097,), (50, 64, 2)],
          "none": [(0,), (0, 5), (5, 0), (3,)], "scalar": [(), (2, 2)]}  # fmt: skip
KS = (1, 2, 64, 410, 4096)


def members(shapes: list[tuple[int, ...]], side: int) -> list[list[int]]:
    """Elements of every chunk, by loops over the definition."""

    def divisor(n: int) -> int:
        return max(each for each in range(1, side + 1) if n % each == 0)

    found, first = [], 0
    for shape in shapes:
        n = int(np.prod(shape))
        if n and len(shape) < 2:
            w = divisor(n)
            found += [list(range(first + at, first + at + w)) for at in range(0, n, w)]
        elif n:
            columns = n // shape[0]
            h, w = divisor(shape[0]), divisor(columns)
            found += [
                [first + (y + r) * columns + x + c for r in range(h) for c in range(w)]
                for y in range(0, shape[0], h)
                for x in range(0, columns, w)
            ]
        first += n
    return found


def chunked(kind: str, k: int, side: int = 64) -> tuple[Chunks, int]:
    sizes = [Size(shape) for shape in SHAPES[kind]]
    return chunks_of(sizes, side, k), sum(size.numel() for size in sizes)


@pytest.fixture(params=["compiled", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    assert kernels.compiled() is not None, kernels.path()
    if request.param == "torch":
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    return request.param


def awkward(n: int, seed: int) -> Tensor:
    """With ties, zeros of both signs, subnormal numbers and rows of another scale."""
    x = gradient(n, seed).mul(4).round() / 4
    x[5::97], x[7::89] = -0.0, 1e-42
    x[: n // 3] *= 100
    return x


@pytest.mark.parametrize(
    ("kind", "side"), [*((kind, 64) for kind in SHAPES), ("kernels", 10), ("kernels", 1)]
)
@pytest.mark.parametrize("k", KS)
def test_the_largest_of_every_chunk_are_found_and_stay(path: str, kind: str, k: int, side: int):
    chunks, n = chunked(kind, k, side)
    total, added = awkward(n, 0), awkward(n, 1)
    both = total + added
    where, values = add_find_(total, added, True, chunks)
    index, expected = positions(chunks, where).tolist(), []
    for elements in members(SHAPES[kind], side):
        at = np.array(elements)
        order = np.argsort(-np.abs(both.numpy()[at]), kind="stable")
        expected += at[np.sort(order[:k])].tolist()
    assert index == expected
    assert torch.equal(bits(values), bits(both[index]))
    assert torch.equal(total, both) and not added.any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_the_largest(path: str, bad: float):
    chunks, n = chunked("by bounds", 2)
    x = awkward(n, 0)
    x[27_000] = bad
    _, values = add_find_(x, None, False, chunks)
    assert int((~values.isfinite()).sum()) == 1


@pytest.mark.parametrize("scales", [(1e-6, 1.0), (1.0, 1e-6)])
def test_rows_that_a_sample_sees_or_does_not_change_nothing(path: str, scales):
    """The bound is then far too high, or far too low."""
    chunks, n = chunked("one", 64)
    x = gradient(n, 3) * scales[0]
    x.view(64, 64)[8::16] *= scales[1] / scales[0]
    where, _ = add_find_(x, None, False, chunks)
    assert where.tolist() == sorted(x.abs().topk(64).indices.tolist())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000, 1001])
def test_positions_take_12_bits_and_come_back(path: str, count: int):
    source = torch.Generator().manual_seed(count)
    where = torch.randint(4096, (count,), generator=source, dtype=torch.int32)
    packed = pack_positions(where)
    assert packed.numel() == -(-3 * count // 2)
    for pair in range(count // 2):
        one, two = where[2 * pair : 2 * pair + 2].tolist()
        three = [one & 255, one >> 8 | (two & 15) << 4, two >> 4]
        assert packed[3 * pair : 3 * pair + 3].tolist() == three
    assert torch.equal(unpack_positions(packed, count), where)


def test_a_position_outside_of_its_chunk_is_refused(path: str):
    chunks, _ = chunked("by bounds", 2)
    where = torch.zeros(chunks.entries, dtype=torch.int32)
    for bad in (4000, -1):
        where[-1], where[0] = 0, bad  # the first chunks are of 50 x 64
        with pytest.raises(IndexError, match="outside of its chunk"):
            positions(chunks, where)


@pytest.mark.parametrize("kind", SHAPES)
def test_the_transform_is_the_orthonormal_dct_and_its_inverse(kind: str):
    chunks, n = chunked(kind, 1)
    x, spectrum, back = gradient(n, 0), torch.empty(n), torch.empty(n)
    transform(x, chunks, spectrum)
    transform(spectrum, chunks, back, inverse=True)
    largest = float(x.abs().max())
    torch.testing.assert_close(back, x, rtol=0, atol=1e-6 * largest)
    assert float(spectrum.norm()) == pytest.approx(float(x.norm()), rel=1e-5)
    if kind == "one":  # by the sum that defines it
        y, x_ = np.mgrid[:64, :64]
        for u, v in ((0, 0), (0, 5), (63, 1), (17, 40)):
            waves = np.cos(np.pi / 64 * u * (y + 0.5)) * np.cos(np.pi / 64 * v * (x_ + 0.5))
            scale = (1 if u else 0.5**0.5) * (1 if v else 0.5**0.5) * 2 / 64
            expected = scale * float((waves * x.view(64, 64).double().numpy()).sum())
            assert float(spectrum.view(64, 64)[u, v]) == pytest.approx(expected, abs=1e-4)
