"""Shortage of processors on this machine since a moment, by the kernel's accounting.

A run's own processes are those of its process namespace, which /proc shows there. All other
processor time belongs to others.
"""

import time
from pathlib import Path
from typing import NamedTuple

SHORTEST_S = 2.0  # of a time of which this says anything
_TICKS = Path("/proc/stat")
_STALLS = Path("/proc/pressure/cpu")  # PSI; a kernel may lack it
_PROCESSES = Path("/proc")


class Pressure(NamedTuple):
    """Load of the machine's processors, as shares in [0, 1]. None means unknown."""

    cpu_idle_share: float | None = None  # of all processors; whatever runs, at any nice, is busy
    cpu_others_share: float | None = None  # taken by processes that are not the run's, at any nice
    cpu_steal_share: float | None = None  # taken by the machine that this one is a guest of
    cpu_pressure: float | None = None  # of the time, that some process waited for a processor


class Ticks(NamedTuple):
    """Clock ticks of all processors since boot."""

    idle: int
    stolen: int
    processes: int  # without interrupts, which no process asked for
    total: int


class Since:
    """Measurement of the pressure since this object was made."""

    def __init__(self) -> None:
        self._began_s, self._stalled_us = time.monotonic(), _stalled_us()
        self._ticks, self._own = _ticks(), _own_ticks()

    def pressure(self) -> Pressure:
        took_s = time.monotonic() - self._began_s
        took = Ticks(*(now - then for now, then in zip(_ticks(), self._ticks, strict=True)))
        if took_s < SHORTEST_S or not took.total:
            return Pressure()
        others = max(0, took.processes - (_own_ticks() - self._own))
        return Pressure(
            took.idle / took.total,
            others / took.total,
            took.stolen / took.total,
            self._stalled_share(took_s),
        )

    def _stalled_share(self, took_s: float) -> float | None:
        stalled_us = _stalled_us()
        if stalled_us is None or self._stalled_us is None:
            return None
        return (stalled_us - self._stalled_us) / 1e6 / took_s


def _ticks() -> Ticks:
    fields = _TICKS.read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields)
    processes, free = user + nice + system, idle + iowait
    return Ticks(free, steal, processes, processes + irq + softirq + steal + free)


def _own_ticks() -> int:
    """Return clock ticks of all processes of this namespace, and of their ended children."""
    return sum(_ticks_of(each) for each in _PROCESSES.iterdir() if each.name.isdigit())


def _ticks_of(process: Path) -> int:
    """Return the ticks of proc(5): utime, stime, cutime, cstime. 0 if the process is gone."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def _stalled_us() -> int | None:
    """Return microseconds since boot in which a process waited for a processor, or None."""
    try:
        return int(_STALLS.read_text().split("\n", 1)[0].rpartition("total=")[2])
    except (OSError, ValueError):
        return None
