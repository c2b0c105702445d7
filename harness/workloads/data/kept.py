"""What is made once and kept for other runs: made by one process, seen by the others when whole."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder(folder: str | None) -> Path:
    """`folder`, or if null gradnet/ in $XDG_CACHE_HOME, or if unset in ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder or Path(home) / "gradnet").expanduser()


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time may look whether `path` is there, and make it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # which ends with the process that has it
        yield


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write under, which becomes `path` when all has gone well."""
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
