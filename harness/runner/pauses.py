"""Ranks that stood still or waited for a processor, according to the kernel.

The supervisor reads the state of every rank's processes. With many processes it reads less often,
so that it never takes more than a hundredth of one processor.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LOOK_S = 0.2  # real, between looks
LEAST_S = 0.5  # real: a shorter pause is not told
WAITED = "waited for a processor"  # cause of a pause
WAITED_SHARE = 0.8  # of the time between looks, that a thread wanted to run and did not
_SHARE = 100  # pause until the next look, as a multiple of a look's duration


class Pause(NamedTuple):
    rank: int
    cause: str
    time_s: float  # emulated, when it began
    length_s: float  # real


class Seen(NamedTuple):
    """State of one process: whether it is stopped, and the processor time of its threads."""

    stopped: bool
    waited_s: Mapping[int, float]  # for a processor since its beginning, by thread
    ran_s: Mapping[int, float]  # on a processor, since its beginning, by thread


@dataclass
class Pauses:
    """Pauses of the ranks' `processes` while the clock runs. `over` are those that have ended."""

    processes: Mapping[int, int]  # rank -> process
    time_s: Callable[[], float | None]  # emulated
    over: list[Pause] = field(default_factory=list, init=False)
    _waited_s: float = field(default=0.0, init=False)  # of all threads
    _ran_s: float = field(default=0.0, init=False)
    _before: dict[int, Seen] = field(default_factory=dict, init=False)
    _now: dict[int, Pause] = field(default_factory=dict, init=False)  # pauses in progress, by rank
    _looked: tuple[float, float | None] = field(default=(0.0, None), init=False)
    _next: float = field(default=0.0, init=False)
    unwatched_s: float | None = field(default=None, init=False)  # most that a look was late

    def look(self) -> None:
        """Read the state of all watched processes, and record pauses, if a look is due."""
        if (now := time.monotonic()) < self._next:
            return
        (looked, then_s), time_s = self._looked, self.time_s()
        if time_s is None or time_s == then_s:  # the clock stands still
            self.end()
            self._before.clear()
        else:
            late_s = now - self._next if then_s is not None else 0.0
            self.unwatched_s = max(self.unwatched_s or 0.0, late_s)
            for rank, process in self.processes.items():
                if seen := look_at(process):
                    self._judge(rank, seen, now - looked, time_s if then_s is None else then_s)
        self._looked = now, time_s
        self._next = now + max(LOOK_S, _SHARE * (time.monotonic() - now))

    @property
    def waited_share(self) -> float | None:
        """Return the share of wanted processor time that threads waited for it, or None."""
        return self._waited_s / (self._waited_s + self._ran_s) if self._ran_s else None

    def end(self) -> list[Pause]:
        """End pauses that last until now, and return all."""
        for rank in list(self._now):
            self._close(rank)
        return self.over

    def _judge(self, rank: int, seen: Seen, since_s: float, then_s: float) -> None:
        """Judge if `rank` stood still in `since_s` real seconds, from `then_s` on the clock."""
        cause, before = "", self._before.get(rank)
        self._before[rank] = seen
        waited_s = list(_grown(before.waited_s, seen.waited_s)) if before else []
        self._waited_s += sum(waited_s)
        self._ran_s += sum(_grown(before.ran_s, seen.ran_s)) if before else 0.0
        if before and seen.stopped:
            cause = "was stopped by a signal"
        elif max(waited_s, default=0.0) > WAITED_SHARE * since_s:
            cause = WAITED
        paused = self._now.get(rank)
        if paused and paused.cause != cause:
            self._close(rank)
        if cause:
            paused = self._now.get(rank, Pause(rank, cause, then_s, 0.0))
            self._now[rank] = paused._replace(length_s=paused.length_s + since_s)

    def _close(self, rank: int) -> None:
        if (paused := self._now.pop(rank)).length_s >= LEAST_S:
            self.over.append(paused)


def _grown(then: Mapping[int, float], now: Mapping[int, float]) -> Iterator[float]:
    """Return the seconds that each thread gained, if it existed before."""
    return (value - then.get(thread, value) for thread, value in now.items())


def look_at(process: int) -> Seen | None:
    """Return the state of `process`, or None once it has ended."""
    folder = Path(f"/proc/{process}")
    try:
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        threads = [each.name for each in (folder / "task").iterdir()]
    except OSError:
        return None
    times_s = {int(thread): _times_s(folder / "task" / thread / "schedstat") for thread in threads}
    ran_s = {thread: ran for thread, (ran, _) in times_s.items()}
    return Seen(state in "Tt", {thread: waited for thread, (_, waited) in times_s.items()}, ran_s)


def _times_s(path: Path) -> tuple[float, float]:
    """Return the seconds that a thread ran and waited, 0 if it has ended or nothing counts."""
    try:
        ran_ns, waited_ns = path.read_text().split()[:2]
        return int(ran_ns) / 1e9, int(waited_ns) / 1e9
    except (OSError, ValueError):
        return 0.0, 0.0


def processes(events: Iterable[Mapping]) -> dict[int, int]:
    """Return process ids of this machine's ranks, which they recorded when ready."""
    return {e["rank"]: e["pid"] for e in events if e["event"] == "rank_ready" and "pid" in e}
