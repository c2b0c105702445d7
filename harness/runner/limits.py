"""Limits on what the trainers of a run may use: time, processes, logs, and privileges.

`first_process` checks them during a run. A trainer's own process calls `confine` first.
"""

import os
import platform
import re
import resource
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.emulation.libc import call

LOOK_S = 1.0  # between counts of processes
MOST_LOG_BYTES = 64 << 20  # of each log; of a longer one the middle is left out
KEPT_LOG_BYTES = 1 << 20  # of its beginning, and of its end
# Of a run, and of each worker and each processor that it may compute on; threads count, too.
PROCESSES, PROCESSES_OF_A_WORKER, THREADS_OF_A_PROCESSOR = 1024, 256, 4
_LOWEST_PID = 300  # the kernel gives lower ones only once
_PID_MAX = Path("/proc/sys/kernel/pid_max")
# Linux from which on these are of one namespace, not of the whole machine
_OWN_PID_MAX, _OWN_PROCESSES = (6, 14), (5, 14)
_PR_CAPBSET_DROP, _CAP_SYS_PTRACE = 24, 19
_CAPABILITY_VERSION = 0x20080522


class LimitPassed(Exception):
    """Error: a run exceeded a limit. The text names the limit and how to raise it."""

    state = "failed"


@dataclass
class Limits:
    """The limits of one run. Its process 1 calls `look` repeatedly."""

    logs: Path  # folder of its logs
    workers: int  # of all machines
    run_s: float  # real seconds that the run may take
    _began: float = field(default_factory=time.monotonic, init=False)
    _next: float = field(default=0.0, init=False)
    _left_out: dict[Path, int] = field(default_factory=dict, init=False)  # bytes, by log

    @property
    def most_processes(self) -> int:
        """Number of processes and threads that the run may have at a time."""
        each = PROCESSES_OF_A_WORKER + THREADS_OF_A_PROCESSOR * (os.cpu_count() or 1)
        return PROCESSES + each * self.workers

    def begin(self) -> None:
        """Set the kernel's own limit on processes, if it counts those of one namespace.

        Otherwise only `look` counts them. Root of the machine has no limit before Linux 6.14.
        """
        release = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
        if release >= _OWN_PID_MAX:
            with suppress(OSError):  # /proc/sys may be read-only in a container
                _PID_MAX.write_text(str(self.most_processes + _LOWEST_PID))
        if release >= _OWN_PROCESSES:
            resource.setrlimit(resource.RLIMIT_NPROC, (self.most_processes, self.most_processes))

    def look(self) -> None:
        """Shorten long logs. Raise LimitPassed if the run is too long or has too many processes.

        The first may be called often: it costs a stat of each log.
        """
        for log in self.logs.glob("*.log"):
            if log.stat().st_size > MOST_LOG_BYTES:
                self._shorten(log)
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + LOOK_S
        if now - self._began > self.run_s:
            raise LimitPassed(
                f"the run did not end within timeouts.run_s = {self.run_s:g} s; raise it, or find "
                "out what does not end"
            )
        if (count := sum(_threads())) > 0.95 * self.most_processes:
            raise LimitPassed(
                f"the run has {count} processes and threads, and {self.workers} workers may have "
                f"{self.most_processes}; does a trainer start them without end?"
            )

    def _shorten(self, log: Path) -> None:
        """Remove the middle of a log to which others keep appending."""
        with log.open("rb+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(end - KEPT_LOG_BYTES)
            tail = file.read()
            left_out = self._left_out.get(log, 0) + end - KEPT_LOG_BYTES - len(tail)
            self._left_out[log] = left_out
            file.truncate(KEPT_LOG_BYTES)
        said = (
            f"\n[harness: {left_out} bytes are left out here, as a log may have "
            f"{MOST_LOG_BYTES >> 20} MiB]\n"
        )
        with log.open("ab") as file:
            file.write(said.encode() + tail)


def confine() -> None:
    """Drop this process's right, and its children's, to trace processes with more privileges.

    Process 1 of the run has more, so no trainer can stop it or change its memory.
    """
    _drop(_CAP_SYS_PTRACE)


def _drop(capability: int) -> None:
    """Drop a capability for good, also for programs that root executes later."""
    call("prctl", _PR_CAPBSET_DROP, capability)
    told = dict(
        line.split(":", 1) for line in Path("/proc/thread-self/status").read_text().splitlines()
    )
    held = [int(told[name], 16) & ~(1 << capability) for name in ("CapEff", "CapPrm", "CapInh")]
    low, high = ([bits >> shift & 0xFFFFFFFF for bits in held] for shift in (0, 32))
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    call("capset", header, struct.pack("=6I", *low, *high))


def _threads() -> Iterator[int]:
    """Return the number of threads of each process of this namespace."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            yield int(fields[17])
