"""One run at a time on a machine, where two would spoil each other's timings; one in a directory.

Both are file locks of the kernel (flock), which go with the last process that has the descriptor,
however that ends. The file says who took it, for those who wait.
"""

import fcntl
import os
import shlex
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from harness.config.typed import BadSetting
from harness.records import mounts, printable

# Which all users share, and all network namespaces; tests/machine.py covers them.
PLACES = (Path("/run/lock"), Path("/tmp"))
NAME = "gradnet-run.lock"
WAITING = "waiting: another run is going on"
EXCLUDES_NOBODY = (
    "can be locked twice: its file system must have locks (flock), or results be on another one"
)
LOOK_S = 0.1
TELL_AFTER_S = 1.0  # of waiting; the processes of a run that was killed need less to go
MOST_SAID_BYTES = 1000  # of who has a lock, which any user may write


def machine_lock() -> Path:
    """The lock of this machine."""
    usable = (place for place in PLACES if place.is_dir() and place.stat().st_mode & stat.S_IWOTH)
    return next(usable, PLACES[-1]) / NAME


@contextmanager
def machine_to_ourselves(what: str) -> Iterator[int]:
    """Wait for our turn and hold the machine for `what`; yields the lock's descriptor.

    A run's processes are given it too: after their runner has died, the next one waits until they
    are gone.
    """
    with _held(machine_lock(), f"on this machine, {what}") as lock:
        yield lock


def directory_lock(run_dir: Path) -> Path:
    """The lock of `run_dir`, beside it; on a file system of several machines it is of all."""
    return run_dir.with_name(f".{run_dir.name}.lock")


@contextmanager
def directory_to_ourselves(run_dir: Path) -> Iterator[None]:
    """Wait until no other process makes `run_dir`, and keep others from doing so."""
    path = directory_lock(run_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    _warn_of(mounts.own_locks(path.parent), path.parent.parent)
    with _held(path, f"on {socket.gethostname()}, in {run_dir}"):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is ours: who has it open looks again


@cache
def _warn_of(why: str, results: Path) -> None:
    """Once: another machine would make the same runs at the same time."""
    if why:
        one = "let one machine at a time make runs there"
        print(f"{results} is on {why}: no other machine sees its locks; {one}", file=sys.stderr)


def holder(path: Path) -> str | None:
    """Description of the holder of the lock `path`, by itself; None when it is free."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        # Shared: NFS gives no other to who reads, and several may look at a time.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        said = os.pread(lock, MOST_SAID_BYTES, 0).decode(errors="replace").strip()
        return printable.line(said)
    finally:
        os.close(lock)


@contextmanager
def _held(path: Path, what: str) -> Iterator[int]:
    began, told = time.monotonic(), False
    try:
        while (lock := _taken(path)) is None:
            if not told and time.monotonic() - began > TELL_AFTER_S:
                print(": ".join(filter(None, (WAITING, holder(path)))), file=sys.stderr)
                told = True
            time.sleep(LOOK_S)
    except OSError as error:
        raise BadSetting(
            f"{path}, by which runs take turns, cannot be locked: {error.strerror}; its owner, or "
            "root, can remove it"
        ) from error
    try:
        command = shlex.join(sys.orig_argv)
        said = f"process {os.getpid()} of user {os.getuid()} {what}, by {command}"
        with suppress(OSError):  # a full disk: who waits is told less
            os.ftruncate(lock, 0)
            os.pwrite(lock, said.encode(errors="replace")[:MOST_SAID_BYTES], 0)
        if not _excludes(lock, path):
            raise BadSetting(f"{path}, by which runs take turns, {EXCLUDES_NOBODY}")
        yield lock
    finally:
        os.close(lock)


def _taken(path: Path) -> int | None:
    """A descriptor of `path` that has its lock; None when another has it."""
    lock = _opened(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and path.stat().st_ino == os.fstat(lock).st_ino:
            return lock
    except BlockingIOError:
        pass
    os.close(lock)
    return None


def _excludes(lock: int, path: Path) -> bool:
    """False where `path` can be locked once more beside `lock`: its file system has no locks."""
    try:
        other = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True  # somebody has removed it
    try:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return not os.path.sameopenfile(other, lock)
    except BlockingIOError:
        return True
    finally:
        os.close(other)


def _opened(path: Path) -> int:
    """`path`, which any user may open; a link or a pipe in its place is nobody's lock."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Without O_CREAT, which fs.protected_regular forbids for another user's file.
        lock = os.open(path, flags)
    except FileNotFoundError:
        try:
            lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return _opened(path)
        os.fchmod(lock, 0o666)  # whatever the umask
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        os.close(lock)
        raise OSError(0, "it is no file")
    return lock
