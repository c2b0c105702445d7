"""The kernels for GPUs: on one where there is one, elsewhere under Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors import kernels
from compressors.base import Bucket
from compressors.buffers import Buffers
from compressors.carried_topk import CarriedTopK
from compressors.fused import add_cast_
from compressors.kernels import gpu
from compressors.packing import pack, unpack
from compressors.stochastic import Grid, _norms, _rounded_on_gpu, add_round_, average_
from compressors.topk_select import _largest, _search_on_gpu, bits
from tests.compressors.reductions import gradient

SIZES = (1, 7, 8, 2047, 2048, 2049, 10_000)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(params=["triton", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way the kernels run."""
    if request.param == "torch":
        monkeypatch.setattr(gpu, "loops", lambda: None)
    elif find_spec("triton") is None:
        pytest.skip("Triton is not made for this system")
    else:
        assert gpu.loops() is not None
    return request.param


def vector(n: int, rank: int = 0) -> Tensor:
    return gradient(n, rank).to(DEVICE)


def select(total: Tensor, threshold: float, capacity: int, added: Tensor | None = None):
    return gpu.select_(total, torch.tensor(threshold, device=DEVICE), capacity, added)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("with_added", [False, True])
def test_what_passes_is_taken_out_in_order(path: str, n: int, with_added: bool) -> None:
    total, added = vector(n, 0), vector(n, 1) if with_added else None
    before = total + added if added is not None else total.clone()
    threshold = float(before.abs().median())
    expected = np.flatnonzero(np.abs(before.cpu().numpy()) >= np.float32(threshold))
    index, values, passed = select(total, threshold, n, added)
    assert passed == len(expected)
    assert index[: len(expected)].tolist() == expected.tolist()
    assert torch.equal(values[: len(expected)], before[index[: len(expected)].long()])
    assert not values[len(expected) :].any() and not index[len(expected) :].any()
    assert torch.equal(total.index_add(0, index, values), before)
    assert not total[index[: len(expected)].long()].any()


@pytest.mark.parametrize("capacity", [1, 100, 1000])
def test_what_finds_no_room_stays(path: str, capacity: int) -> None:
    before = vector(5000)
    total = before.clone()
    index, values, passed = select(total, 0.0, capacity)
    assert passed == 5000
    assert index.tolist() == list(range(capacity))
    assert torch.equal(values, before[:capacity])
    assert torch.equal(total[capacity:], before[capacity:]) and not total[:capacity].any()


def test_zeros_are_not_taken_and_nan_is(path: str) -> None:
    total = torch.zeros(3000, device=DEVICE)
    assert select(total, 0.0, 10).passed == 0
    total[[5, 2500]] = torch.tensor([float("nan"), -float("inf")], device=DEVICE)
    index, values, passed = select(total, 1e30, 10)
    assert passed == 2 and index[:2].tolist() == [5, 2500]
    assert values[0].isnan() and values[1] == -float("inf")
    assert not total.any()


def test_nothing_that_passes_leaves_all(path: str) -> None:
    before = vector(3000)
    total = before.clone()
    index, values, passed = select(total, float(before.abs().max()) * 2, 8)
    assert passed == 0 and not values.any() and not index.any()
    assert torch.equal(total, before)


@pytest.mark.parametrize("n", SIZES)
def test_signs_are_packed_as_numpy_packs_them(path: str, n: int) -> None:
    x = vector(n)
    x[:: max(1, n // 3)] = 0
    expected = np.packbits(x.cpu().numpy() >= 0, bitorder="little")
    assert gpu.pack_signs(x).tolist() == expected.tolist()


@pytest.mark.parametrize("n", SIZES)
def test_packed_signs_are_added(path: str, n: int) -> None:
    x, total = vector(n, 0), vector(n, 1)
    expected = total + torch.where(x >= 0, 0.25, -0.25)
    gpu.add_signs_(total, gpu.pack_signs(x), torch.tensor(0.25, device=DEVICE))
    assert torch.equal(total, expected)


def test_a_compressor_sends_its_capacity_and_keeps_the_rest(path: str) -> None:
    """As `carried_topk` does it on a GPU; elsewhere the same call, whose sample is then numpy's."""
    n, k = 20_000, 200
    residual, added = vector(n, 0), vector(n, 1)
    before = residual + added
    bucket = Bucket(0, 0, ("all",), [residual.shape], Buffers(added, residual))
    where, values = CarriedTopK(capacity=1.5).taken_on_gpu(bucket, k, (0, 0, 0))
    assert len(values) == len(where) == 300
    sent = int(values.count_nonzero())
    assert 0.7 * k < sent <= 300
    assert torch.equal(residual.index_add(0, where, values), before)
    assert before.abs().topk(sent).values.min() == values[:sent].abs().min()


GRIDS = {"equal": lambda n: torch.arange(64, n + 64, 64).clamp_(max=n),
         "odd": lambda n: torch.arange(100, n + 100, 100).clamp_(max=n),
         "one": lambda n: torch.tensor([n]),
         "unequal": lambda n: torch.tensor([*range(3, n, max(1, n // 5)), n])}  # fmt: skip
WIDTHS = (2, 3, 5, 8)


def steps_of(grid: Grid) -> Tensor:
    steps = gradient(grid.ends.numel(), 5).abs() / grid.levels
    steps[::7] = torch.inf
    return steps.to(DEVICE)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's way, on the CPU."""
    monkeypatch.setattr(kernels, "compiled", lambda: None)


@pytest.mark.parametrize("n", [1, 64, 1000])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ends", GRIDS)
def test_codes_are_those_of_torch(n: int, width: int, ends: str, plain: None) -> None:
    grid, key = Grid(GRIDS[ends](n), width), (3, n)
    for keep in (True, False):
        ours, theirs = vector(n), gradient(n, 0)
        steps = steps_of(grid)
        packed = _rounded_on_gpu(ours, None, grid, steps, key, keep, None)
        expected = add_round_(theirs, None, grid, steps.cpu(), key, keep)
        finite = steps.cpu().isfinite()[torch.bucketize(torch.arange(n), grid.ends, right=True)]
        codes = (unpack(each.cpu(), width, n)[finite] for each in (packed, expected))
        assert torch.equal(*codes)
        assert torch.equal(ours.cpu(), theirs)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ends", GRIDS)
@pytest.mark.parametrize("workers", [1, 3, 9])
def test_codes_are_added_as_torch_adds_them(width, ends, workers, plain):
    n = 1000
    grid = Grid(GRIDS[ends](n), width)
    random = torch.Generator().manual_seed(width)
    codes = torch.randint(2 * grid.levels + 1, (workers, n), generator=random, dtype=torch.uint8)
    rounded = [(pack(each, width), gradient(grid.ends.numel(), 1).abs()) for each in codes]
    expected = average_(torch.empty(n), grid, rounded)
    ours, blocks = torch.full((n,), torch.nan, device=DEVICE), gpu.Blocks.of(grid.ends, DEVICE)
    steps = [(each / workers).to(DEVICE) for _, each in rounded]
    gpu.sum_rounded_(ours, blocks, width, [each.to(DEVICE) for each, _ in rounded], steps)
    assert torch.equal(ours.cpu(), expected)


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("length", [1, 64, 100, 2048])
@pytest.mark.parametrize("with_added", [False, True])
def test_steps_are_norms_over_levels(norm: str, length: int, with_added: bool) -> None:
    n = 3000
    total, added = vector(n, 0), vector(n, 1) if with_added else None
    total[2500] = torch.nan
    expected = total + added if added is not None else total.clone()
    grid = Grid(torch.arange(length, n + length, length).clamp_(max=n), 4)
    steps = torch.empty(grid.ends.numel(), device=DEVICE)
    packed = _rounded_on_gpu(total, added, grid, steps, (1, 2), False, norm)
    torch.testing.assert_close(steps, _norms(expected, length, norm) / 7, equal_nan=True)
    assert torch.equal(total.nan_to_num(0), expected.nan_to_num(0))
    given = _rounded_on_gpu(total, None, grid, steps, (1, 2), False, None)
    finite = torch.arange(n) // length != 2500 // length
    codes = (unpack(each.cpu(), 4, n)[finite] for each in (packed, given))
    assert torch.equal(*codes)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("with_added", [False, True])
def test_signs_are_packed_and_measured(n: int, squared: bool, with_added: bool) -> None:
    total, added = vector(n, 0), vector(n, 1) if with_added else None
    expected = total + added if added is not None else total.clone()
    packed = torch.empty(-(-n // 8), dtype=torch.uint8, device=DEVICE)
    found = gpu.add_pack_signs_(total, added, packed, squared)
    wide = expected.double()
    torch.testing.assert_close(found, (wide.square() if squared else wide.abs()).sum())
    assert torch.equal(total, expected) and torch.equal(packed, gpu.pack_signs(expected))


@pytest.mark.parametrize("workers", [1, 2, 9])
@pytest.mark.parametrize("onto", [False, True])
def test_all_signs_are_added_in_order(workers: int, onto: bool) -> None:
    n, scales = 2500, gradient(workers, 3).to(DEVICE)
    signs = [vector(n, rank) for rank in range(workers)]
    ours = vector(n, 20)
    expected = ours.clone() if onto else torch.zeros_like(ours)
    for each, scale in zip(signs, scales, strict=True):
        expected += torch.where(each >= 0, scale, -scale)
    gpu.sum_signs_(ours, [gpu.pack_signs(each) for each in signs], scales, onto)
    assert torch.equal(ours, expected)


HALVES = [torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])]  # else it is cut off


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("with_added", [False, True])
def test_casts_are_torchs(dtype: torch.dtype, keep: bool, with_added: bool, plain: None) -> None:
    n, added = 5000, gradient(5000, 1) if with_added else None
    ours, theirs = vector(n), gradient(n, 0)
    wires = [torch.empty(n, dtype=dtype, device=where) for where in (DEVICE, "cpu")]
    most = gpu.add_cast_(ours, None if added is None else added.to(DEVICE), 3, wires[0], keep)
    assert float(most) == add_cast_(theirs, added, 3, wires[1], keep)
    assert torch.equal(wires[0].cpu(), wires[1]) and torch.equal(ours.cpu(), theirs)


@pytest.mark.parametrize("n", SIZES)
def test_a_sum_is_measured(n: int) -> None:
    total, added = vector(n, 0), vector(n, 1)
    expected = total + added
    largest, squares = gpu.add_measure_(total, added)
    assert torch.equal(total, expected) and largest == expected.abs().max()
    torch.testing.assert_close(squares, expected.double().square().sum())


@pytest.mark.parametrize("kind", ["heavy", "ties", "zeros", "nan"])
@pytest.mark.parametrize("k", [1, 500, 6000])
@pytest.mark.parametrize("with_added", [False, True])
def test_the_largest_are_found_by_a_sampled_bound(kind, k, with_added, monkeypatch):
    if gpu.loops() is not None:
        from compressors.kernels import gpu_selection

        monkeypatch.setattr(gpu_selection, "RANKED", 4096)
        monkeypatch.setattr(gpu_selection, "RANKERS", 2)  # so that each has several turns
    n = 20_000
    x, added = gradient(n, 0), gradient(n, 1) if with_added else None
    if kind == "ties":
        x = x.mul(2).round()
    elif kind == "zeros":
        x = x * (x > 3)
    elif kind == "nan":
        x[::1000] = torch.nan
    summed = x if added is None else x + added
    ours = x.to(DEVICE)
    other = None if added is None else added.to(DEVICE)
    found = _search_on_gpu(ours, k, other, erase=with_added)
    where = _largest(bits(summed), k)
    assert torch.equal(found.index.cpu(), where.int())
    torch.testing.assert_close(found.values.cpu(), summed[where], rtol=0, atol=0, equal_nan=True)
    left = summed.index_fill(0, where, 0) if with_added else summed
    torch.testing.assert_close(ours.cpu(), left, rtol=0, atol=0, equal_nan=True)


COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
from compressors.kernels import gpu_loops as loops
from compressors.kernels import gpu_selection as selection

FLOATS, INTS, COUNT = "*fp32", "*i32", "i32"
SUM_CODES = [FLOATS, COUNT, COUNT, "*i64", COUNT, ("*u8", "*u8"), (FLOATS, FLOATS)]
for kernel, types, constants in (
    (selection.bound_sample, [FLOATS, FLOATS, COUNT, COUNT, COUNT, FLOATS],
     {"with_added": True, "run": 32, "size": 16384}),
    (selection.mark, [FLOATS, FLOATS, COUNT, FLOATS, INTS, INTS, COUNT],
     {"with_added": True, "word": 32, "size": 2048}),
    (selection.find_marked, [INTS, INTS, COUNT, COUNT, INTS, COUNT, INTS],
     {"most": 2048, "word": 32, "size": 2048, "words": 512}),
    (selection.take_found, [FLOATS, INTS, FLOATS, COUNT, INTS], {"erase": True, "size": 512}),
    *((selection.count_digits, [FLOATS, COUNT, FLOATS, INTS, COUNT, COUNT, INTS, INTS],
       {"digit": digit, "size": 1024}) for digit in range(4)),
    (selection.count_ranked, [FLOATS, COUNT, FLOATS, INTS, COUNT, COUNT, INTS, INTS, INTS, INTS],
     {"size": 1024}),
    (selection.take_ranked,
     [FLOATS, COUNT, INTS, FLOATS, INTS, COUNT, COUNT, INTS, INTS, INTS, INTS, FLOATS],
     {"erase": True, "programs": 512, "size": 1024}),
    (loops.pack_signs, [FLOATS, COUNT, "*u8"], {"size": 256}),
    (loops.add_signs, [FLOATS, "*u8", FLOATS, COUNT], {"size": 2048}),
    (loops.add_round,
     [FLOATS, FLOATS, COUNT, COUNT, FLOATS, COUNT, "*i64", COUNT, COUNT, COUNT, "*u8", "*u8"],
     {"levels": 1, "block": 512, "rounds": 0, "norm": 2, "width": 2, "with_added": True,
      "keep": True, "size": 256}),
    (loops.sum_codes, SUM_CODES,
     {"levels": 1, "onto": False, "alike": 0, "rounds": 3, "width": 2, "size": 256}),
    (loops.sum_two_bits, [FLOATS, COUNT, ("*u8", "*u8"), (FLOATS, FLOATS)],
     {"onto": True, "alike": 64, "size": 256}),
    (loops.sum_codes, SUM_CODES,
     {"levels": 127, "onto": True, "alike": 64, "rounds": 0, "width": 8, "size": 256}),
    (loops.sum_rest,
     [FLOATS, COUNT, COUNT, COUNT, "*i64", COUNT, ("*u8", "*u8"), (FLOATS, FLOATS)],
     {"levels": 1, "onto": False, "rounds": 0, "width": 2, "size": 64}),
    (loops.add_pack_measure, [FLOATS, FLOATS, COUNT, "*u8", "*fp64"],
     {"with_added": True, "squared": True, "size": 256}),
    (loops.sum_signs, [FLOATS, COUNT, ("*u8", "*u8"), FLOATS], {"onto": True, "size": 256}),
    (loops.add_cast, [FLOATS, FLOATS, COUNT, "fp32", "fp32", "*bf16", "*i32"],
     {"with_added": True, "keep": True, "size": 2048}),
    (loops.add_measure, [FLOATS, FLOATS, COUNT, "*i32", "*fp64"],
     {"with_added": True, "size": 2048}),
):
    signature = dict(zip(kernel.arg_names, [*types, *["constexpr"] * len(constants)], strict=True))
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not made for this system")
def test_the_kernels_compile_for_a_gpu() -> None:
    """What the interpreter takes need not compile; that needs no GPU."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
