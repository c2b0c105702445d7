"""Clock of a run: seconds since step 0, shared by its ranks and the profile player."""

import mmap
import struct
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

_READY = 0  # byte: 1 if every rank waits for step 0
_ACTIVE = 1  # byte: index of the valid slot
_SLOTS = 2
_SLOT = struct.Struct(
    "dd"
)  # origin plus past pauses; start of the current pause, NaN while running
_LOCAL_RANKS = _SLOTS + 2 * _SLOT.size  # a byte per rank, set when it is ready to continue
_NAN = float("nan")
POLL_S = 0.0001
MINUTE_S = 60.0


def minutes_of(seconds: float) -> str:
    """Return `seconds` of real time as a text in whole minutes, at least 1."""
    return f"{max(1, round(seconds / MINUTE_S))} min"


class RankClock(Protocol):
    """Clock as a rank's program reads it; one of its seconds lasts `dilation` real seconds."""

    @property
    def dilation(self) -> float: ...

    def now(self) -> float:
        """Return the emulated seconds since step 0, without pauses."""
        ...

    def sleep_until(self, at: float) -> None: ...

    def computing(self) -> AbstractContextManager[None]:
        """Return a context manager for computation of this rank."""
        ...

    def compressing(self, entries: int) -> AbstractContextManager[None]:
        """Return a context manager for compressing `entries` elements; 0 means decompressing."""
        ...


class Clock:
    """Clock of a run over packets, which counts real seconds and stops while the run is paused.

    It is in anonymous shared memory: create it before forking, so that all processes read the same
    time. Only one process at a time may write: the supervisor starts it, rank 0 pauses and resumes
    it. `now` is in real seconds, `time_s` in emulated ones (real / dilation). A resumed run begins
    at `begins_s`, where the earlier run ended.
    """

    def __init__(self, dilation: float = 1.0, begins_s: float = 0.0) -> None:
        self.dilation, self.begins_s = dilation, begins_s  # emulated seconds
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)  # the smallest mapping
        self._write(_NAN, _NAN)

    def call_ready(self) -> None:
        """Announce that all ranks are waiting for step 0."""
        self._memory[_READY] = 1

    @property
    def ready(self) -> bool:
        return self._memory[_READY] == 1

    def start(self) -> None:
        """Start the clock: the first step begins now."""
        self._write(time.monotonic() - self.begins_s * self.dilation, _NAN)

    def pause(self, at: float) -> None:
        """Stop the clock at its recent reading `at`, so that meeting to stop takes no time."""
        origin, _ = self._read()
        self._write(origin, origin + at)

    def resume(self) -> None:
        origin, paused_at = self._read()
        self._write(origin + time.monotonic() - paused_at, _NAN)

    def report_back(self, local_rank: int) -> None:
        """Announce that `local_rank` is ready to continue."""
        self._memory[_LOCAL_RANKS + local_rank] = 1

    def resume_with(self, local_world_size: int) -> None:
        """Resume when all ranks of this machine have called `report_back`.

        Messages over the network would reach the ranks one after another, tenths of a second apart
        if it is congested. They all see shared memory at once.
        """
        back = slice(_LOCAL_RANKS, _LOCAL_RANKS + local_world_size)
        while not all(self._memory[back]):
            time.sleep(POLL_S)
        self._memory[back] = bytes(local_world_size)
        self.resume()

    @property
    def running(self) -> bool:
        origin, paused_at = self._read()
        return origin == origin and paused_at != paused_at

    def wait_running(self) -> None:
        """Block the calling thread until the clock runs."""
        while not self.running:
            time.sleep(POLL_S)

    def wait_until(self, at: float) -> None:
        """Block until the clock runs and reads `at` or more."""
        while not self.running or self.now() < at:
            time.sleep(POLL_S)

    def now(self) -> float:
        """Return the real seconds since step 0 without pauses; NaN before step 0."""
        origin, paused_at = self._read()
        return (time.monotonic() if paused_at != paused_at else paused_at) - origin

    def sleep_until(self, at: float) -> None:
        """Sleep until this clock reads `at`. Call it only while the clock runs."""
        if (left := at - self.now()) > 0:
            time.sleep(left)

    def computing(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing: computation takes its real time."""
        return nullcontext()

    def compressing(self, entries: int) -> AbstractContextManager[None]:
        return nullcontext()

    def monotonic(self, at: float) -> float:
        """Return the value of time.monotonic() when this clock reads `at`, while it runs."""
        origin, _ = self._read()
        return origin + at

    def time_s(self) -> float | None:
        """Return the emulated seconds since step 0; None before step 0."""
        now = self.now()
        return None if now != now else now / self.dilation

    def _read(self) -> tuple[float, float]:
        offset = _SLOTS + self._memory[_ACTIVE] * _SLOT.size
        origin, paused_at = _SLOT.unpack_from(self._memory, offset)
        return origin, paused_at

    def _write(self, origin: float, paused_at: float) -> None:
        # Fill the idle slot, then switch to it, so that a reader never sees half a change.
        idle = 1 - self._memory[_ACTIVE]
        _SLOT.pack_into(self._memory, _SLOTS + idle * _SLOT.size, origin, paused_at)
        self._memory[_ACTIVE] = idle
