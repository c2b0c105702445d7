"""With compiled kernels a compressor has the results it has without, to the bit."""

import pytest
import torch
from torch import Tensor

from compressors import kernels
from compressors.packing import pack
from compressors.rng import positions
from compressors.sparse import add_at_
from harness.engine.exchange.feedback import NoFeedback, Residual
from tests.compressors.reductions import Outcome, Replica, bits, build, gradient
from tests.compressors.threads import ThreadWorkers, together

VARIANTS = [*(f"qsgd bits={bits} block={block}" for bits, block in ((8, 512), (5, 100), (2, 1))),
            "qsgd norm=l2", "terngrad", "terngrad layerwise=false clip=.inf", "onebit",
            "ef_signsgd", "ef_signsgd layerwise=true", "signsgd", "fp16", "bf16", "randomk",
            "randomk shared=false", "sparseloco", "sparseloco aggregate=contributors bits=null",
            "demo", "int8", "int4 server_feedback=true"]  # fmt: skip
SPARSE = ("randomk", "sparseloco", "demo")
STEPS = 3


def special(n: int, seed: int) -> Tensor:
    """Zeros of both signs, subnormal numbers, equal ones and large ones among the others."""
    x = gradient(n, seed)
    for offset, value in enumerate((0.0, -0.0, 1e-42, -1e-45, 0.25, 60_000.0)):
        x[offset :: 7 * offset + 11] = value
    return x


def outcomes(variant: str, n: int, kept: bool) -> list[list[Outcome]]:
    def work(workers: ThreadWorkers) -> list[Outcome]:
        feedback = Residual() if kept else NoFeedback()
        replica = Replica(workers, build(variant), feedback, in_place=not kept)
        grads = [special(n, 10 * step + workers.rank) * 0.9**step for step in range(STEPS)]
        density = 0.3 if variant.startswith(SPARSE) else 1.0
        return [replica.reduce(grad, density, step) for step, grad in enumerate(grads)]

    return together(3, work)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 4095, 4097, 20_001])
@pytest.mark.parametrize("variant", VARIANTS)
def test_equal_bits_on_either_path(variant: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.compiled() is not None, kernels.path()
    for kept in (True, False):
        compiled = outcomes(variant, n, kept)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "compiled", lambda: None)
            expected = outcomes(variant, n, kept)
        for ours, theirs in zip(sum(compiled, []), sum(expected, []), strict=True):
            assert torch.equal(ours.reduced.mean, theirs.reduced.mean)
            assert ours.contributed_bytes == theirs.contributed_bytes
            if kept and ours.reduced.unsent is not None:
                assert torch.equal(bits(ours.reduced.unsent), bits(theirs.reduced.unsent))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (100, 99), (64, 32), (70_000, 700), (9999, 9000)])
def test_equal_positions_on_either_path(n: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = positions(n, k, (1, n)).clone()
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    assert torch.equal(found, positions(n, k, (1, n)))


@pytest.mark.parametrize("width", range(1, 8))
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 5000])
def test_codes_are_packed_alike(width: int, n: int) -> None:
    native = kernels.compiled()
    assert native is not None
    source = torch.Generator().manual_seed(n)
    codes = torch.randint(1 << width, (n,), generator=source, dtype=torch.uint8)
    packed = pack(codes, width)
    unpacked = torch.empty_like(codes)
    native.quantise.unpack(packed.numpy(), width, 0, unpacked.numpy())
    assert torch.equal(unpacked, codes)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("bad", [-1, 3])
def test_a_position_outside_is_refused(dtype: torch.dtype, bad: int) -> None:
    with pytest.raises(IndexError, match="index"):
        add_at_(torch.zeros(3), torch.tensor([0, bad], dtype=dtype), torch.ones(2), 1.0)
