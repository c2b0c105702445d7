"""Files that one process makes and keeps for later runs. Others see them only when complete."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compressors.kernels import private


def cache_folder(folder: str | None) -> Path:
    """Return the `folder` of a setting, or if null the one that no other user can write to."""
    return Path(folder).expanduser() if folder else private.cache_folder()


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock under which one process builds the file `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # which ends with the process that has it
        yield


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context manager: yield a temporary path, renamed to `path` if no error occurs."""
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
