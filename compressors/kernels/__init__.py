"""Kernels on the CPU in machine code, where numba can make it.

Without numba, callers use numpy and get equal results; `harness.doctor` compares the two. Compiled
code is cached on disk; the first use on a machine takes half a minute of a core.
"""

import fcntl
import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.kernels import private

# Modules here, in the order of Compiled.
NAMES = ("native", "ranking", "signs", "quantise", "casts", "scatter", "lowrank", "chunks")
INDEX_END = 1 << 31  # positions are counted in int32
CHOICE = "GRADNET_KERNELS"  # environment variable; `numpy`: compile nothing, results are equal
LOCATORS = "NUMBA_CACHE_LOCATOR_CLASSES"
COMPILED, COMPILING = "compiled", "lock"  # files of a cache: that all is there, who makes it


class Found(NamedTuple):
    """Entries of a vector, by ascending position."""

    where: np.ndarray  # int32 [c]
    values: np.ndarray  # float32 [c]


class Compiled(NamedTuple):
    """The modules of compiled kernels."""

    kernels: Any  # the module compressors.kernels.native
    ranking: Any  # and so on
    signs: Any
    quantise: Any
    casts: Any
    scatter: Any
    lowrank: Any
    chunks: Any
    compress: bool  # whether the processor has an instruction for it

    def collect(
        self,
        x: np.ndarray,
        bound: int,
        capacity: int,
        added: np.ndarray | None = None,
        clear: bool = False,
        erase: bool = False,
        first: int = 0,
        count: int = 0,
    ) -> Found:
        """Entries of `x`, contiguous float32 [n], whose magnitude has bits above `bound`.

        With `added`, of x += added, and `clear` sets `added` to zero. `erase` sets those found to
        zero in `x`. `capacity` is how many are expected; there may be more. Of those from position
        `first` on, after the `count` that the call before found. What is returned is valid until
        this thread's next call.
        """
        block = self.kernels.BLOCK
        most = x.size + block
        index, values = _own.arrays(min(count + capacity + block, most), count)
        while True:
            state = (bound, self.compress, erase, first, index, values, count)
            if added is None:
                first, count = self.kernels.collect(x, *state)
            else:
                first, count = self.kernels.add_collect(x, added, clear, *state)
            if first == x.size:
                return Found(index[:count], values[:count])
            index, values = _own.arrays(min(2 * index.size, most), count)

    def largest(self, found: Found, k: int) -> Found:
        """The k of `found` with the largest magnitudes; of equal ones the first.

        What is returned is valid until this thread's next call.
        """
        kept = _best.arrays(k + self.kernels.BLOCK)
        self.ranking.largest(*found, k, self.compress, *kept)
        return Found(kept.where[:k], kept.values[:k])


_loading = Lock()
_known: list[tuple["Compiled | None", str]] = []  # of this process: at most one
NOTHING = Found(np.empty(0, np.int32), np.empty(0, np.float32))


class Scratch:
    """Arrays that a thread uses again for what it finds: fresh ones would be faulted in anew."""

    def __init__(self) -> None:
        self._found = ContextVar("scratch", default=NOTHING)  # of each thread

    def arrays(self, size: int, count: int = 0) -> Found:
        """Two of at least `size`, that begin with the first `count` of what was here last."""
        old = self._found.get()
        if old.where.size >= size:
            return old
        found = Found(np.empty(size, np.int32), np.empty(size, np.float32))
        for new, known in zip(found, old, strict=True):
            new[:count] = known[:count]
        self._found.set(found)
        return found


_own, _best = Scratch(), Scratch()


def compiled() -> Compiled | None:
    """The compiled kernels, None when there are none; fork only after the first call."""
    return _once()[0]


def of(x: Tensor, added: Tensor | None = None) -> Compiled | None:
    """Return the compiled kernels if they work on `x`, and on what is `added` to it; else None.

    ValueError unless both are alike: a kernel trusts the size of `x` for both.
    """
    if added is not None:
        require_alike(x, added)
    fits = x.is_cpu and x.is_contiguous() and x.dtype == torch.float32 and x.numel() < INDEX_END
    return compiled() if fits and (added is None or added.is_contiguous()) else None


def require_alike(x: Tensor, added: Tensor) -> None:
    """Raise ValueError unless `x` and what is `added` to it have one shape, type and device."""
    if x.shape != added.shape or x.dtype != added.dtype or x.device != added.device:
        told = (f"{each.dtype} {list(each.shape)} on {each.device}" for each in (added, x))
        raise ValueError("{} cannot be added to {}; they must be alike".format(*told))


def require_room(what: str, tensor: Tensor, count: int) -> None:
    """Raise ValueError unless `tensor`, which a kernel reads or fills, has `count` elements."""
    if tensor.numel() < count:
        raise ValueError(f"{what} must have {count} elements, got {list(tensor.shape)}")


def addresses(tensors: Sequence[Tensor], nbytes: int) -> np.ndarray:
    """Start addresses of the tensors, int64 [tensors]; ValueError if one is below `nbytes`."""
    for tensor in tensors:
        if not (tensor.is_cpu and tensor.is_contiguous() and tensor.nbytes >= nbytes):
            raise ValueError(f"expected {nbytes} bytes in one piece, got {tuple(tensor.shape)}")
    return np.array([tensor.data_ptr() for tensor in tensors], np.int64)


@contextmanager
def by_numpy() -> Iterator[None]:
    """Context in which all threads of this process use numpy."""
    known, _known[:] = [_once()], [(None, "numpy: asked for")]
    try:
        yield
    finally:
        _known[:] = known


def path() -> str:
    """Name of the active code path, with the reason when it is numpy."""
    return _once()[1]


def to_compile() -> bool:
    """True where the first use of a kernel will compile them all: half a minute of one core."""
    if os.environ.get(CHOICE) == "numpy" or find_spec("numba") is None:
        return False
    cache = _cache()
    return cache is None or not (cache / COMPILED).exists()


def _once() -> tuple[Compiled | None, str]:
    """Load the compiled loops once: the first thread that asks does it, the others wait."""
    if not _known:
        with _loading:
            if not _known:
                _known.append(_loaded())
    return _known[0]


def _loaded() -> tuple[Compiled | None, str]:
    if os.environ.get(CHOICE) == "numpy":
        return None, f"numpy: {CHOICE} asks for it"
    reason = ""
    for cache in (_cache(), None):
        try:
            with _one_compiles(cache):
                modules = _imported(cache)
            found = Compiled._make([*modules, _has_compress()])
            return found, f"numba, {'compress' if found.compress else 'mask'}"
        except Exception as error:  # whatever a compiler may raise: numpy does the same
            reason = f"numpy: {type(error).__name__}: {error}".splitlines()[0]
    return None, reason


@contextmanager
def _one_compiles(cache: Path | None) -> Iterator[None]:
    """Processes that begin together wait for the first, and load what it has compiled."""
    if cache is None or (cache / COMPILED).exists():
        yield
        return
    with (cache / COMPILING).open("w") as lock:
        with suppress(OSError):  # of a file system without locks: each compiles
            fcntl.flock(lock, fcntl.LOCK_EX)  # which ends with the process that has it
        yield
        (cache / COMPILED).touch()


def _imported(cache: Path | None) -> list[ModuleType]:
    """The modules of kernels; these and numba read NUMBA_CACHE_DIR when they are imported."""
    if cache is None:
        os.environ.pop("NUMBA_CACHE_DIR", None)
    else:
        os.environ["NUMBA_CACHE_DIR"] = str(cache)
    for name in ("vectors", *NAMES):
        sys.modules.pop(f"{__name__}.{name}", None)
    with _placed(cache):
        return [importlib.import_module(f"{__name__}.{name}") for name in NAMES]


@contextmanager
def _placed(cache: Path | None) -> Iterator[None]:
    """Numba asks where a function's code is kept when the function is defined."""
    if cache is None:
        yield
        return
    from numba import config

    before = os.environ.get(LOCATORS)
    os.environ[LOCATORS] = f"{__name__}.place.OfEqualSources"
    config.reload_config()
    try:
        yield
    finally:
        del os.environ[LOCATORS]  # which a child that knows nothing of us would have, too
        if before is not None:
            os.environ[LOCATORS] = before
        config.reload_config()


def _cache() -> Path | None:
    """Return a private directory for compiled code, None if none can be made.

    Every state of the sources has its own, as numba does not notice when a kernel changes that
    another file calls; so has every version of Python, which cannot use code of another.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    decisive = [str(sys.implementation.cache_tag).encode(), *map(Path.read_bytes, sources)]
    state = hashlib.blake2b(b"".join(decisive), digest_size=8).hexdigest()
    try:
        place = private.cache_folder() / state
        place.mkdir(mode=0o700, exist_ok=True)
        return None if private.not_private(place) else place
    except OSError:
        return None


def _has_compress() -> bool:
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("avx512f"))
