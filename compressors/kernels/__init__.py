"""Compiled kernels of compression on the CPU, made by numba where it is installed.

Compressors call `of(tensor)`, which returns None without numba. They then use numpy or torch, with
equal results; `harness.doctor` compares the two. Compiled code is cached on disk. The first use on
a machine takes half a minute of one core.
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

# modules of this package, in the order of the fields of Compiled
NAMES = ("native", "ranking", "signs", "quantise", "casts", "scatter", "lowrank", "chunks")
INDEX_END = 1 << 31  # positions are int32
CHOICE = "GRADNET_KERNELS"  # environment variable; `numpy` compiles nothing, with equal results
LOCATORS = "NUMBA_CACHE_LOCATOR_CLASSES"
COMPILED, COMPILING = "compiled", "lock"  # file that marks a complete cache; lock file


class Found(NamedTuple):
    """Entries of a vector, sorted by position."""

    where: np.ndarray  # int32 [c]
    values: np.ndarray  # float32 [c]


class Compiled(NamedTuple):
    """The modules of compiled kernels, of which a process loads at most one set."""

    kernels: Any  # the module compressors.kernels.native; the others by their names
    ranking: Any
    signs: Any
    quantise: Any
    casts: Any
    scatter: Any
    lowrank: Any
    chunks: Any
    compress: bool  # True if the processor has a compress instruction (AVX-512)

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
        """Return the entries of `x`, contiguous float32 [n], whose magnitude bits exceed `bound`.

        Add `added`, [n], to `x` first, if given, and set it to zero with `clear`. With `erase`, set
        the entries found to zero in `x`. `capacity` is their expected number; more are possible. To
        continue a search, pass the position `first` to begin at and the `count` of entries that the
        last call found. They stay at the front of the result. The arrays are valid until this
        thread's next call.
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
        """Return the k entries of `found` with the largest magnitudes, sorted by position.

        Of entries with equal magnitudes, the first ones are kept. The arrays are valid until this
        thread's next call.
        """
        kept = _best.arrays(k + self.kernels.BLOCK)
        self.ranking.largest(*found, k, self.compress, *kept)
        return Found(kept.where[:k], kept.values[:k])


_loading = Lock()
_known: list[tuple["Compiled | None", str]] = []  # one item once the kernels are loaded
NOTHING = Found(np.empty(0, np.int32), np.empty(0, np.float32))


class Scratch:
    """Arrays that a thread reuses for results, because new memory would cost page faults."""

    def __init__(self) -> None:
        self._found = ContextVar("scratch", default=NOTHING)  # one value per thread

    def arrays(self, size: int, count: int = 0) -> Found:
        """Return the thread's two arrays, enlarged to at least `size` elements each if needed.

        New arrays begin with the first `count` elements of the old ones; the rest is undefined.
        """
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
    """Return the compiled kernels or None; the first call loads them, so fork only afterwards."""
    return _once()[0]


def of(x: Tensor, added: Tensor | None = None) -> Compiled | None:
    """Return the compiled kernels if they can process `x` and `added`, else None.

    They process contiguous float32 tensors on the CPU with fewer than 2^31 elements. Raise
    ValueError unless both have one shape, type and device, as a kernel trusts the size of `x`.
    """
    if added is not None:
        require_alike(x, added)
    fits = x.is_cpu and x.is_contiguous() and x.dtype == torch.float32 and x.numel() < INDEX_END
    return compiled() if fits and (added is None or added.is_contiguous()) else None


def require_alike(x: Tensor, added: Tensor) -> None:
    """Raise ValueError unless `x` and `added` have the same shape, type and device."""
    if x.shape != added.shape or x.dtype != added.dtype or x.device != added.device:
        told = (f"{each.dtype} {list(each.shape)} on {each.device}" for each in (added, x))
        raise ValueError("{} cannot be added to {}; they must be alike".format(*told))


def require_room(what: str, tensor: Tensor, count: int) -> None:
    """Raise ValueError if `tensor`, named `what`, has fewer than `count` elements."""
    if tensor.numel() < count:
        raise ValueError(f"{what} must have {count} elements, got {list(tensor.shape)}")


def addresses(tensors: Sequence[Tensor], nbytes: int) -> np.ndarray:
    """Return start addresses, int64 [tensors]; ValueError unless each has `nbytes` on the CPU."""
    for tensor in tensors:
        if not (tensor.is_cpu and tensor.is_contiguous() and tensor.nbytes >= nbytes):
            raise ValueError(f"expected {nbytes} bytes in one piece, got {tuple(tensor.shape)}")
    return np.array([tensor.data_ptr() for tensor in tensors], np.int64)


@contextmanager
def by_numpy() -> Iterator[None]:
    """Context manager under which all threads of this process use numpy instead of kernels."""
    known, _known[:] = [_once()], [(None, "numpy: asked for")]
    try:
        yield
    finally:
        _known[:] = known


def path() -> str:
    """Return the name of the active code path: numba, or numpy with the reason."""
    return _once()[1]


def to_compile() -> bool:
    """Return True if the first use of a kernel will compile all: half a minute of one core."""
    if os.environ.get(CHOICE) == "numpy" or find_spec("numba") is None:
        return False
    cache = _cache()
    return cache is None or not (cache / COMPILED).exists()


def _once() -> tuple[Compiled | None, str]:
    """Return kernels (or None) and the code path's name, loaded by the first thread that asks."""
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
        except Exception as error:  # compilers raise anything; numpy has equal results
            reason = f"numpy: {type(error).__name__}: {error}".splitlines()[0]
    return None, reason


@contextmanager
def _one_compiles(cache: Path | None) -> Iterator[None]:
    """Context manager under which one process at a time compiles into `cache`.

    Other processes wait, and then load what it compiled. Nothing is locked if all is compiled,
    without a `cache`, or on a file system without locks.
    """
    if cache is None or (cache / COMPILED).exists():
        yield
        return
    with (cache / COMPILING).open("w") as lock:
        with suppress(OSError):  # without file locks, every process compiles
            fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel releases it if the process dies
        yield
        (cache / COMPILED).touch()


def _imported(cache: Path | None) -> list[ModuleType]:
    """Import the modules of kernels anew, so that they cache compiled code in `cache`.

    Set NUMBA_CACHE_DIR, which numba and the modules read on import; without a `cache`, unset it.
    """
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
    """Context manager under which numba caches functions with our locator.

    Numba chooses a function's cache folder when the function is defined. Afterwards its settings
    are restored. Without a `cache` nothing changes.
    """
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
        del os.environ[LOCATORS]  # child processes must not inherit it
        if before is not None:
            os.environ[LOCATORS] = before
        config.reload_config()


def _cache() -> Path | None:
    """Return a private directory for compiled code, or None if none can be made.

    Its name has a hash of all sources and of the Python version. Numba does not notice if a kernel
    in another file changes, and other Pythons cannot use the code.
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
