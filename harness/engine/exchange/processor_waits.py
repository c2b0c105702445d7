"""Time that a rank's threads wait for a processor, from the kernel's schedstat files.

The training loop writes it to steps.csv. `harness.runner.lateness` uses it to bound how much other
programs slowed a run. Only waits that may have delayed a step count. Two kinds do not: the training
thread's waits before its last bucket, because its pace already shows lateness, and the sending
threads' waits before the first bucket is due.
"""

import os
import threading
from collections.abc import Callable
from math import nan
from pathlib import Path

NS_PER_S = 1e9
MOST_BYTES = 64  # size limit of a schedstat file, which has three numbers
OWN_THREADS = Path("/proc/self/task")
COMPRESSING = "exchange"  # name of the compression thread


class ProcessorWaits:
    """Counter of this process's processor waits, reset at each step."""

    def __init__(self, threads: Path = OWN_THREADS) -> None:
        """Start counting. `threads` has one folder per thread, each with a schedstat file."""
        self._threads = threads
        self._files: dict[str, int] = {}  # open schedstat descriptor of each thread
        self._compressing: set[str] = set()
        self._since = self._read()  # waits in ns, by thread, that do not count
        self._is_handed_over = self._is_due = False

    def handed_over(self, is_sending: bool = False) -> None:
        """Record that the calling training thread hands over a bucket.

        Counting of all threads restarts at the step's first bucket. That of the caller restarts at
        every bucket. `is_sending` means that earlier buckets are still being sent.
        """
        if not self._is_handed_over:
            self._since = self._read()
        self._is_handed_over, self._is_due = True, self._is_due or is_sending
        if (own := _own()) in self._files:
            self._since[own] = self._waited_ns(own)

    def until_due(self, left_s: float, sleep: Callable[[], None]) -> None:
        """Call `sleep`, which ends when a bucket is due in `left_s`. The sending thread calls this.

        Before the first bucket is due, only waits of compression thread and caller are kept.
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
        """Return the waits of the finished step in real seconds, summed over threads.

        Return NaN if the kernel does not count them. The next step begins now.
        """
        before, self._since = self._since, self._read()
        self._is_handed_over = self._is_due = False
        grown_ns = [ns - before.get(thread, 0) for thread, ns in self._since.items()]
        return sum(grown_ns) / NS_PER_S if grown_ns else nan

    def _read(self) -> dict[str, int]:
        """Return waits so far in ns, by thread. Empty if the kernel does not count them."""
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
