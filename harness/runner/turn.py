"""One run at a time on a machine: two at once would spoil each other's timings."""

import errno
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOCK = "gradnet-run"  # abstract socket that the run now going on holds
LOOK_S = 0.1
TELL_AFTER_S = 1.0  # of waiting; the processes of a run that was killed need less to go


@contextmanager
def machine_to_ourselves() -> Iterator[int]:
    """Wait for our turn and hold the machine; yields the lock's descriptor.

    The lock is an abstract socket, so it leaves no file and goes with the last process that has
    it. A run's processes are given it too: after their runner has died, the next one waits until
    they are gone.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        began, told = time.monotonic(), False
        while not _take(lock):
            if not told and time.monotonic() - began > TELL_AFTER_S:
                print("waiting: another run is going on on this machine", file=sys.stderr)
                told = True
            time.sleep(LOOK_S)
        yield lock.fileno()


def _take(lock: socket.socket) -> bool:
    """Whether the lock was free, and is ours now."""
    try:
        lock.bind("\0" + LOCK)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
