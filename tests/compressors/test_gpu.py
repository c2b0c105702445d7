"""The kernels for GPUs: on one where there is one, elsewhere under Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.base import Bucket
from compressors.buffers import Buffers
from compressors.carried_topk import CarriedTopK
from compressors.kernels import gpu
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


COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
from compressors.kernels import gpu_loops as loops

FLOATS, COUNT = "*fp32", "i32"
for kernel, types, constants in (
    (loops.add_count, [FLOATS, FLOATS, COUNT, FLOATS, "*i32"], {"with_added": True, "size": 2048}),
    (loops.take_out, [FLOATS, COUNT, FLOATS, "*i64", "*i32", FLOATS, COUNT], {"size": 2048}),
    (loops.pack_signs, [FLOATS, COUNT, "*u8"], {"size": 256}),
    (loops.add_signs, [FLOATS, "*u8", FLOATS, COUNT], {"size": 2048}),
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
