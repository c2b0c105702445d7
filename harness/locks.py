"""File locks: one run at a time on a machine, and one process at a time in a run directory.

Two runs at a time would distort each other's timings. The locks are the kernel's (flock): they end
with the last process that has the descriptor. The file names the holder, for those who wait.
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

# Folders shared by all users and network namespaces; tests/machine.py covers them.
PLACES = (Path("/run/lock"), Path("/tmp"))
NAME = "gradnet-run.lock"
WAITING = "waiting: another run is going on"
EXCLUDES_NOBODY = (
    "can be locked twice: its file system must have locks (flock), or results be on another one"
)
LOOK_S = 0.1
TELL_AFTER_S = 1.0  # seconds of waiting; the processes of a killed run end sooner
MOST_SAID_BYTES = 1000  # limit on the holder's text, as any user may write it


def machine_lock() -> Path:
    """Return the path of this machine's lock."""
    usable = (place for place in PLACES if place.is_dir() and place.stat().st_mode & stat.S_IWOTH)
    return next(usable, PLACES[-1]) / NAME


@contextmanager
def machine_to_ourselves(what: str) -> Iterator[int]:
    """Wait for this machine's lock, hold it for `what`, and yield its descriptor.

    Pass the descriptor to a run's processes: if their runner dies, the next run waits until they
    end. Raise BadSetting if the file cannot be locked.
    """
    with _held(machine_lock(), f"on this machine, {what}") as lock:
        yield lock


def directory_lock(run_dir: Path) -> Path:
    """Return the path of the lock of `run_dir`, a file beside it that other machines may see."""
    return run_dir.with_name(f".{run_dir.name}.lock")


@contextmanager
def directory_to_ourselves(run_dir: Path) -> Iterator[None]:
    """Wait until no other process makes `run_dir`, and hold its lock meanwhile.

    Warn if other machines cannot see the lock. Raise BadSetting if the file cannot be locked.
    """
    path = directory_lock(run_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    _warn_of(mounts.own_locks(path.parent), path.parent.parent)
    with _held(path, f"on {socket.gethostname()}, in {run_dir}"):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # still locked, so waiting processes open a new file


@cache
def _warn_of(why: str, results: Path) -> None:
    """Warn once that another machine could make the same runs in `results` at the same time."""
    if why:
        one = "let one machine at a time make runs there"
        print(f"{results} is on {why}: no other machine sees its locks; {one}", file=sys.stderr)


def holder(path: Path) -> str | None:
    """Return the description that the holder of the lock `path` wrote; None if it is free."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        # Shared, as NFS gives readers no exclusive lock, and several may look at once.
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
        with suppress(OSError):  # on a full disk the text is missing
            os.ftruncate(lock, 0)
            os.pwrite(lock, said.encode(errors="replace")[:MOST_SAID_BYTES], 0)
        if not _excludes(lock, path):
            raise BadSetting(f"{path}, by which runs take turns, {EXCLUDES_NOBODY}")
        yield lock
    finally:
        os.close(lock)


def _taken(path: Path) -> int | None:
    """Return a descriptor of `path` that holds its lock; None if another process holds it."""
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
    """Return False if `path` can be locked again beside `lock`: its file system has no locks."""
    try:
        other = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True  # another process removed it
    try:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return not os.path.sameopenfile(other, lock)
    except BlockingIOError:
        return True
    finally:
        os.close(other)


def _opened(path: Path) -> int:
    """Open or create `path` for any user. Raise OSError if it is a link, a pipe or no file."""
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
