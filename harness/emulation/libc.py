"""System calls that Python 3.11 has no function for."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes | None) -> None:
    """Call libc's `name`. Raise OSError with its errno if it fails."""
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
