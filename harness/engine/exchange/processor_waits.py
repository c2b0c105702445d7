"""Time for which the threads of a rank wait for a processor, as the kernel counts it.

The training loop writes it to steps.csv, and `harness.runner.lateness` bounds by it how late other
programs made a run. Of each step only those waits count that may have delayed it: none of the
training thread before its last bucket, as its pace tells if it was late, and none of the threads
that send before the first bucket is due.
"""

import os
import threading
from collections.abc import Callable
from math import nan
from pathlib import Path

NS_PER_S = 1e9
MOST_BYTES = 64  # of a schedstat file: three numbers
OWN_THREADS = Path("/proc/self/task")
COMPRESSING = ("exchange", "exchange fiber")  # names of threads, which work before anything is due


class Uncounted:
    """Counts nothing: waits of a rank that no verdict rests on."""

    def handed_over(self, is_sending: bool = False) -> None:
        return None

    def until_due(self, left_s: float, sleep: Callable[[], None]) -> None:
        sleep()

    def take_s(self) -> float:
        return nan


class ProcessorWaits(Uncounted):
    """Waits of the threads of this process, step by step."""

    def __init__(self, threads: Path = OWN_THREADS) -> None:
        """Count from now on; `threads` has a folder with the file schedstat for each thread."""
        self._threads = threads
        self._files: dict[str, int] = {}  # open schedstat of each thread
        self._compressing: set[str] = set()
        self._since = self._read()  # nanoseconds, by thread, from which on its waits count
        self._is_handed_over = self._is_due = False

    def handed_over(self, is_sending: bool = False) -> None:
        """Record that the training thread hands over a bucket; `is_sending`: others are under way.

        Waits of all threads count from the first bucket on, those of the caller from the last.
        """
        if not self._is_handed_over:
            self._since = self._read()
        self._is_handed_over, self._is_due = True, self._is_due or is_sending
        if (own := _own()) in self._files:
            self._since[own] = self._waited_ns(own)

    def until_due(self, left_s: float, sleep: Callable[[], None]) -> None:
        """Call `sleep`, of the thread that sends, until a bucket is due in `left_s`.

        What threads waited before the first one was due has delayed nothing, unless they compress.
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
        """End a step: real seconds, summed over threads; NaN where the kernel does not count.

        A step without a bucket began where the last one ended.
        """
        before, self._since = self._since, self._read()
        self._is_handed_over = self._is_due = False
        grown_ns = [ns - before.get(thread, 0) for thread, ns in self._since.items()]
        return sum(grown_ns) / NS_PER_S if grown_ns else nan

    def _read(self) -> dict[str, int]:
        """Nanoseconds that each thread has waited; empty where the kernel does not count."""
        waits = {}
        for thread in os.listdir(self._threads):
            try:
                if thread not in self._files:
                    self._files[thread] = os.open(self._threads / thread / "schedstat", os.O_RDONLY)
                    name = (self._threads / thread / "comm").read_text().strip()
                    self._compressing |= {thread} if name in COMPRESSING else set()
                waits[thread] = self._waited_ns(thread)
            except OSError:  # it has ended, or there is no such file
                if (file := self._files.pop(thread, None)) is not None:
                    os.close(file)
        return waits

    def _waited_ns(self, thread: str) -> int:
        return int(os.pread(self._files[thread], MOST_BYTES, 0).split()[1])


def _own() -> str:
    return str(threading.get_native_id())
