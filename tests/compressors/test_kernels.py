"""The compiled kernels have the results of numpy, bit for bit, on every path and when they fail."""

import fcntl
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from compressors import kernels
from compressors.packing import add_pack_signs_, add_signs_, pack_signs, packed_bytes
from compressors.topk_select import (
    Entries,
    above,
    add_reaching_,
    at_least,
    bits,
    kth_sampled,
    largest,
    runs,
    sample,
    take_largest_,
)
from tests.compressors import kernel_results
from tests.compressors.test_topk_select import INPUTS
from tests.launching import ROOT, afresh

SIZES = (1, 15, 63, 64, 65, 1000, 4096, 100_001)


@pytest.fixture(params=["compress", "mask"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> kernels.Compiled:
    """Both paths: LLVM has code for a compress on processors without one, too."""
    found = kernels.compiled()
    assert found is not None, kernels.path()
    chosen = found._replace(compress=request.param == "compress")
    monkeypatch.setattr(kernels, "compiled", lambda: chosen)
    return chosen


@pytest.fixture
def with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "compiled", lambda: None)


def inputs(kind: str, n: int) -> torch.Tensor:
    return INPUTS[kind](n, torch.Generator().manual_seed(n))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", INPUTS)
def test_collect_equals_numpy(compiled: kernels.Compiled, kind: str, n: int) -> None:
    x = inputs(kind, n)
    keys = bits(x).numpy()
    for bound in {0, int(keys[0]), int(keys.max()), int(np.median(keys)), int(keys.max()) - 1}:
        where = np.flatnonzero(keys > bound)
        for capacity in (1, n // 10, n):
            found = compiled.collect(x.numpy(), bound, capacity)
            assert np.array_equal(found.where, where)
            assert np.array_equal(found.values.view(np.int32), x.numpy()[where].view(np.int32))
        assert above(x, bound).tolist() == where.tolist()


def check_taken(residual: torch.Tensor, grad: torch.Tensor, k: int, clear: bool) -> None:
    """The same bits as with one thing done after the other."""
    total, added, spent = residual + grad, residual.clone(), grad.clone()
    where = largest(total, k)
    index, values = take_largest_(added, k, spent, clear)
    assert torch.equal(index.long(), where)
    left = total.index_fill(0, where, 0)
    assert np.array_equal(values.numpy(), total[where].numpy(), equal_nan=True)
    assert np.array_equal(added.numpy(), left.numpy(), equal_nan=True)
    assert not spent.any() if clear else np.array_equal(spent, grad, equal_nan=True)
    index, values = take_largest_(total, k)
    assert torch.equal(index.long(), where)
    assert np.array_equal(total.numpy(), left.numpy(), equal_nan=True)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", INPUTS)
def test_adding_and_taking_is_both(compiled: kernels.Compiled, kind: str, n: int) -> None:
    grad, residual = inputs(kind, n), 0.1 * inputs("normal", n)
    for k in sorted({1, max(1, n // 100), max(1, n // 3), n}):
        for clear in (False, True):
            check_taken(residual, grad, k, clear)


def test_what_was_taken_lasts_whatever_other_threads_take(compiled: kernels.Compiled) -> None:
    x = inputs("normal", 100_001)
    taken = take_largest_(x, 500)
    before = [part.clone() for part in taken]
    other = Thread(target=take_largest_, args=(x, 700))
    other.start()
    other.join()
    above(x, 0)
    assert all(torch.equal(one, other) for one, other in zip(taken, before, strict=True))


@pytest.mark.parametrize("numpy", [False, True])
@pytest.mark.parametrize("kind", INPUTS)
def test_adding_and_comparing_is_both(kind, numpy, monkeypatch):
    grad = inputs(kind, 4097)
    residual = 0.1 * inputs("normal", 4097)
    total = residual + grad
    if numpy:
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    for where in (runs(4097, 100, 7), runs(4097, 4097)):
        drawn = sample(residual, where, grad).clone()
        assert torch.equal(drawn, sample(total, where))
        for k in (1, where.size // 3, where.size):
            kth = int(drawn.sort(descending=True).values[k - 1])
            assert kth == kth_sampled(residual, where, k, grad) == kth_sampled(total, where, k)
    for threshold in (total.abs().median(), torch.tensor(0.0), torch.tensor(torch.inf)):
        added = residual.clone()
        expected = at_least(total, threshold)
        index, values = add_reaching_(added, threshold, grad)
        assert torch.equal(index.long(), expected)
        assert np.array_equal(values.numpy(), total[expected].numpy(), equal_nan=True)
        assert np.array_equal(added.numpy(), total.numpy(), equal_nan=True)
        added, spent = residual.clone(), grad.clone()
        found = Entries.none(added)
        for first, stop in ((0, 77), (77, 78), (78, 4097)):  # in pieces
            part = added[:stop], threshold, spent[:stop], True
            found = add_reaching_(*part, found, first)
        assert torch.equal(found.index.long(), expected)
        assert np.array_equal(found.values.numpy(), total[expected].numpy(), equal_nan=True)
        assert np.array_equal(added.numpy(), total.numpy(), equal_nan=True) and not spent.any()


@pytest.mark.parametrize("kind", INPUTS)
def test_numpy_does_the_same(with_numpy: None, kind: str) -> None:
    x = inputs(kind, 100_001)
    order = np.argsort(-bits(x).numpy().astype(np.int64), kind="stable")
    for k in (1, 1000, 33_333, x.numel()):
        expected = np.sort(order[:k]).tolist()
        assert largest(x, k).tolist() == expected
        check_taken(torch.zeros_like(x), x, k, clear=True)
        assert above(x, 0).tolist() == x.numpy().nonzero()[0].tolist()


def test_strided_and_empty_vectors_are_searched(compiled: kernels.Compiled) -> None:
    x = inputs("normal", 1000)[::3]
    assert above(x, 0).numel() == x.numel()
    assert torch.equal(largest(x, 7), largest(x.contiguous(), 7))
    assert above(torch.empty(0), 0).numel() == 0


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", INPUTS)
def test_signs_are_those_of_numpy(kind: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, scales = inputs(kind, n), torch.tensor([0.3, -1e-40, 3e38, torch.inf, torch.nan])
    packed, totals = pack_signs(x), [x.clone() for _ in scales]
    for total, scale in zip(totals, scales, strict=True):
        add_signs_(total, packed, scale)
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    assert torch.equal(packed, pack_signs(x))
    for total, scale in zip(totals, scales, strict=True):
        expected = x.clone()
        add_signs_(expected, packed, scale)
        assert np.array_equal(total.numpy(), expected.numpy(), equal_nan=True)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", INPUTS)
def test_moments_of_sums_are_those_of_torch(kind, n, monkeypatch):
    for x in (inputs(kind, n), 1e35 * inputs(kind, n), torch.empty(0)):
        packed = torch.empty(packed_bytes(x.numel(), 1), dtype=torch.uint8)
        for squared in (False, True):
            total = x / 2
            found = add_pack_signs_(total, total.clone(), packed, squared)
            with monkeypatch.context() as patch:
                patch.setattr(kernels, "compiled", lambda: None)
                assert torch.equal(packed, pack_signs(total))
                expected = add_pack_signs_(total, None, packed, squared)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=0, equal_nan=True)


def load(monkeypatch: pytest.MonkeyPatch) -> tuple[kernels.Compiled | None, str]:
    """What a process would find at its first use."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # is put back, however the load leaves it
    return kernels._loaded()


def test_without_numba_the_path_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "NAMES", ("missing",))
    found, path = load(monkeypatch)
    assert found is None
    assert path.startswith("numpy: ModuleNotFoundError")


@pytest.mark.parametrize(("name", "broken", "wrong"), [
    ("signs", "add", lambda total, packed, scale: None),
    ("signs", "vote", lambda payloads, scale, result: result.fill(scale)),
    ("quantise", "encode", lambda *rest: None),
    ("quantise", "average", lambda *rest: None),
    ("casts", "encode", lambda *rest: 0),
    ("scatter", "add", lambda *rest: True),
    ("lowrank", "product", lambda *rest: None),
    ("lowrank", "subtract", lambda *rest: None),
    ("scatter", "mark", lambda n, count, key, bitmap: bitmap.fill(0)),
])  # fmt: skip
def test_every_kernel_has_the_results_of_numpy_and_a_broken_one_has_not(
    compiled: kernels.Compiled,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: str,
    wrong: Callable,
) -> None:
    assert kernel_results.agrees(compiled)
    monkeypatch.setattr(getattr(compiled, name), broken, wrong)
    assert not kernel_results.agrees(compiled)


def test_a_cache_that_fails_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = kernels.compiled()[: len(kernels.NAMES)]

    def imported(cache: object) -> tuple:
        if cache is not None:
            raise RuntimeError("cannot cache function")
        return modules

    monkeypatch.setattr(kernels, "_imported", imported)
    assert load(monkeypatch)[1].startswith("numba")


def test_it_is_known_before_whether_there_is_something_to_compile(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(kernels.CHOICE, raising=False)
    assert kernels.to_compile()
    monkeypatch.setenv(kernels.CHOICE, "numpy")
    assert not kernels.to_compile()
    monkeypatch.delenv(kernels.CHOICE)
    [kept] = (tmp_path / "gradnet").iterdir()
    (kept / "a.nbi").touch()  # by a process that is not yet done
    assert kernels.to_compile()
    (kept / kernels.COMPILED).touch()
    assert not kernels.to_compile()


def may_compile(cache: Path) -> bool:
    """Whether a process that asks now would not have to wait."""
    with (cache / kernels.COMPILING).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_one_process_compiles_and_the_others_wait_for_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), kernels._one_compiles(tmp_path):
        raise RuntimeError("is ended by a signal")
    assert may_compile(tmp_path)
    with kernels._one_compiles(tmp_path):
        assert not may_compile(tmp_path)
    with kernels._one_compiles(tmp_path):  # all is there
        assert may_compile(tmp_path)
    with kernels._one_compiles(None):
        pass


def test_every_version_of_python_compiles_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a second one says before it starts that it will."""
    kernels.compiled()
    assert not kernels.to_compile()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "implementation", SimpleNamespace(cache_tag="cpython-999"))
        another, has_to = kernels._cache(), kernels.to_compile()
    assert another and another != kernels._cache() and has_to
    another.rmdir()


def test_equal_sources_are_compiled_once_wherever_they_lie(tmp_path: Path) -> None:
    kernels.compiled()
    cache = kernels._cache()
    assert cache
    shutil.copytree(ROOT / "compressors", tmp_path / "compressors")
    before = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    said = """
from concurrent.futures import ThreadPoolExecutor
from compressors import kernels
with ThreadPoolExecutor(3) as threads:  # as ranks of one process, which all ask at once
    [told] = set(threads.map(lambda _: kernels.path(), range(3)))
print(kernels.__file__, told)
"""
    done = afresh([sys.executable, "-c", said], cwd=tmp_path)
    there = tmp_path / "compressors/kernels/__init__.py"
    assert done.stdout == f"{there} {kernels.path()}\n", done
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == before
