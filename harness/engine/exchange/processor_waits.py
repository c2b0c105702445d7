"""Time for which the threads of a rank wait for a processor, as the kernel counts it.

The training loop writes it to steps.csv; `harness.runner.lateness` derives from it a bound on how
late other programs made a run. Only waits that may have delayed a step count. Waits of the training
thread before its last bucket do not: its pace shows whether it was late. Neither do waits of the
sending threads before the first bucket is due.
"""

import os
import threading
from collections.abc import Callable
from math import nan
from pathlib import Path

NS_PER_S = 1e9
MOST_BYTES = 64  # of a schedstat file: three numbers
OWN_THREADS = Path("/proc/self/task")
COMPRESSING = "exchange"  # name of the thread that compresses, also before anything is due


class ProcessorWaits:
    """Waits of the threads of this process, step by step."""

    def __init__(self, threads: Path = OWN_THREADS) -> None:
        """Count from now on; `threads` has one folder for each thread, with the file schedstat."""
        self._threads = threads
        self._files: dict[str, int] = {}  # open schedstat of each thread
        self._compressing: set[str] = set()
        self._since = self._read()  # nanoseconds, by thread, from which on its waits count
        self._is_handed_over = self._is_due = False

    def handed_over(self, is_sending: bool = False) -> None:
        """Record that the training thread hands over a bucket.

        Waits of all threads count from the first bucket on, those of the caller from the last.
        `is_sending` says that earlier buckets are still on their way.
        """
        if not self._is_handed_over:
            self._since = self._read()
        self._is_handed_over, self._is_due = True, self._is_due or is_sending
        if (own := _own()) in self._files:
            self._since[own] = self._waited_ns(own)

    def until_due(self, left_s: float, sleep: Callable[[], None]) -> None:
        """Call `sleep`, which ends when a bucket is due in `left_s`; the sending thread calls this.

        Waits before the first bucket is due delay nothing, except those of the compressing thread.
        """
        own, is_first, self._is_due = _own(), not self._is_due, True
        if not is_first or left_s <= 0 or own not in self._files:
            return sleep()
        before_ns = self._waited_ns(own)
        sleep()
        self._since = self._read() | {
            thread: ns for thread, ns in self._since.items() if thread in self._compressing
        }
        self._since[own] = before_ns

    def take_s(self) -> float:
        """End a step and return its waits, real seconds summed over threads.

        NaN if the kernel does not count them. A step without a bucket begins where the last ended.
        """
        before, self._since = self._since, self._read()
        self._is_handed_over = self._is_due = False
        grown_ns = [ns - before.get(thread, 0) for thread, ns in self._since.items()]
        return sum(grown_ns) / NS_PER_S if grown_ns else nan

    def _read(self) -> dict[str, int]:
        """Return nanoseconds waited by thread; empty if the kernel does not count them."""
        waits = {}
        for thread in os.listdir(self._threads):
            try:
                if thread not in self._files:
                    self._files[thread] = os.open(self._threads / thread / "schedstat", os.O_RDONLY)
                    name = (self._threads / thread / "comm").read_text().strip()
                    self._compressing |= {thread} if name == COMPRESSING else set()
                waits[thread] = self._waited_ns(thread)
            except OSError:  # the thread has ended, or the kernel has no such file
                if (file := self._files.pop(thread, None)) is not None:
                    os.close(file)
        return waits

    def _waited_ns(self, thread: str) -> int:
        return int(os.pread(self._files[thread], MOST_BYTES, 0).split()[1])


def _own() -> str:
    return str(threading.get_native_id())
