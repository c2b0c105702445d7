"""Anonymous network namespaces: no name, file or process; a descriptor keeps one alive."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.emulation.libc import call

CLONE_NEWNET = 0x40000000


def _open_own() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Namespace:
    """One network namespace, held by its descriptor. The kernel removes it after the last user."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def current(cls) -> "Namespace":
        """Return an object for the calling thread's network namespace."""
        return cls(_open_own())

    @classmethod
    def create(cls) -> "Namespace":
        """Create an empty namespace. OSError without CAP_SYS_ADMIN in this user namespace."""
        made: list[int | OSError] = []

        def leave_and_open() -> None:
            try:
                call("unshare", CLONE_NEWNET)
                made.append(_open_own())
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=leave_and_open)
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return cls(made[0])

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Context manager under which this thread, its new sockets and its forks are in here."""
        back = _open_own()
        try:
            call("setns", self.descriptor, CLONE_NEWNET)
            try:
                yield
            finally:
                call("setns", back, CLONE_NEWNET)
        finally:
            os.close(back)

    def close(self) -> None:
        os.close(self.descriptor)


def find(inode: int) -> Namespace | None:
    """Return the network namespace with this inode, of a process or a mount seen from here."""
    mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    mounted = [Path(place.split()[4]) for place, kind in mounts if kind.startswith("nsfs ")]
    own = Path("/proc/thread-self/ns/net")
    for path in (own, *Path("/proc").glob("[0-9]*/ns/net"), *mounted):
        try:
            if path.stat().st_ino == inode:
                return Namespace(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            continue  # it ended meanwhile, or is not ours to see
    return None
