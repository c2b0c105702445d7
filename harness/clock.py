"""The clock of a run: seconds since step 0, shared by the ranks and the profile player."""

import mmap
import struct
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

_READY = 0  # byte set once every rank waits for step 0
_ACTIVE = 1  # byte holding the number of the valid slot
_SLOTS = 2
_SLOT = struct.Struct(
    "dd"
)  # origin + pauses so far; when the current pause began, nan while running
_LOCAL_RANKS = _SLOTS + 2 * _SLOT.size  # a byte each, set by a rank that is ready to go on
_NAN = float("nan")
POLL_S = 0.0001
MINUTE_S = 60.0


def minutes_of(seconds: float) -> str:
    """Real time in words, for a terminal: whole minutes, one at least."""
    return f"{max(1, round(seconds / MINUTE_S))} min"


class RankClock(Protocol):
    """Clock as a rank's program reads it: its seconds last `dilation` real ones."""

    @property
    def dilation(self) -> float: ...

    def now(self) -> float:
        """Emulated seconds since step 0, pauses excluded."""
        ...

    def sleep_until(self, at: float) -> None: ...

    def computing(self) -> AbstractContextManager[None]:
        """While the rank computes."""
        ...

    def compressing(self, entries: int) -> AbstractContextManager[None]:
        """While it compresses so many entries; 0: it takes apart what others have compressed."""
        ...


class Clock:
    """Clock of a run, which counts while training runs and stands still while it is paused.

    Lives in anonymous shared memory: create it before forking, then every process reads one time.
    One process at a time writes: the supervisor starts it, rank 0 pauses and resumes it. Real
    seconds are `now`; emulated ones, `time_s`, are real seconds divided by the dilation. It begins
    at `begins_s`, where an earlier run was left.
    """

    def __init__(self, dilation: float = 1.0, begins_s: float = 0.0) -> None:
        self.dilation, self.begins_s = dilation, begins_s  # emulated seconds
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)  # it takes a page anyway
        self._write(_NAN, _NAN)

    def call_ready(self) -> None:
        """Announce that every rank is waiting for step 0."""
        self._memory[_READY] = 1

    @property
    def ready(self) -> bool:
        return self._memory[_READY] == 1

    def start(self) -> None:
        """The first step begins now."""
        self._write(time.monotonic() - self.begins_s * self.dilation, _NAN)

    def pause(self, at: float) -> None:
        """Stand still at `at` on this clock, a moment ago: meeting to stop takes no time either."""
        origin, _ = self._read()
        self._write(origin, origin + at)

    def resume(self) -> None:
        origin, paused_at = self._read()
        self._write(origin + time.monotonic() - paused_at, _NAN)

    def report_back(self, local_rank: int) -> None:
        """`local_rank` is ready to go on."""
        self._memory[_LOCAL_RANKS + local_rank] = 1

    def resume_with(self, local_world_size: int) -> None:
        """Resume once the ranks of this machine are back, so that none is late through the others.

        What a network tells them reaches them one after the other, a contended one tenths of a
        second apart; this memory has it at once.
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
        """Return once whoever stopped the clock has started it again."""
        while not self.running:
            time.sleep(POLL_S)

    def wait_until(self, at: float) -> None:
        """Wait until the clock runs and reads `at` or more."""
        while not self.running or self.now() < at:
            time.sleep(POLL_S)

    def now(self) -> float:
        """Real seconds since step 0 without the pauses; nan before step 0."""
        origin, paused_at = self._read()
        return (time.monotonic() if paused_at != paused_at else paused_at) - origin

    def sleep_until(self, at: float) -> None:
        """Sleep until this clock reads `at`; call it while the clock runs."""
        if (left := at - self.now()) > 0:
            time.sleep(left)

    def computing(self) -> AbstractContextManager[None]:
        """Context around computation, which takes the time it takes."""
        return nullcontext()

    def compressing(self, entries: int) -> AbstractContextManager[None]:
        return nullcontext()

    def monotonic(self, at: float) -> float:
        """Reading of time.monotonic() at `at` on this clock, while it runs."""
        origin, _ = self._read()
        return origin + at

    def time_s(self) -> float | None:
        """Emulated seconds since step 0; None before step 0."""
        now = self.now()
        return None if now != now else now / self.dilation

    def _read(self) -> tuple[float, float]:
        offset = _SLOTS + self._memory[_ACTIVE] * _SLOT.size
        origin, paused_at = _SLOT.unpack_from(self._memory, offset)
        return origin, paused_at

    def _write(self, origin: float, paused_at: float) -> None:
        # Fill the idle slot, then switch to it: a reader never sees half a change.
        idle = 1 - self._memory[_ACTIVE]
        _SLOT.pack_into(self._memory, _SLOTS + idle * _SLOT.size, origin, paused_at)
        self._memory[_ACTIVE] = idle
