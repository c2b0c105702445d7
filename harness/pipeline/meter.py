"""What crossed the cuts of a step, as differences of counters that only grow."""

from collections.abc import Sequence
from typing import NamedTuple

from compressors.activations.operator import Crossed, Cut
from harness.crossing import Crossing
from harness.pipeline.link import Inlet, Outlet
from harness.pipeline.meeting import Meeting


class _Sums(NamedTuple):
    sent_bytes: int = 0
    received_bytes: int = 0
    dense_bytes: int = 0
    waited_s: float = 0.0
    flushed_s: float = 0.0
    kept: int = 0
    entries: int = 0


class Meter:
    """Reads the ends of the cuts beside a stage and its meetings, or the operators in a model."""

    def __init__(self, ends: Sequence[Inlet | Outlet | Cut | Meeting]) -> None:
        self._ends = ends
        self._before = self._sums()

    def read(self) -> Crossing:
        """Since the last time."""
        before, self._before = self._before, self._sums()
        fresh = _Sums._make(now - then for now, then in zip(self._before, before, strict=True))
        occupancy = fresh.kept / fresh.entries if fresh.entries else float("nan")
        return Crossing(*fresh[:-2], occupancy)

    def _sums(self) -> _Sums:
        each = map(_counters, self._ends)
        return _Sums._make(map(sum, zip(_Sums(), *each, strict=True)))


def _counters(end: Inlet | Outlet | Cut | Meeting) -> _Sums:
    if isinstance(end, Meeting):
        return _Sums(end.workers.sent_bytes, end.workers.received_bytes)
    crossed = Crossed() if isinstance(end, Inlet) else end.crossed
    if isinstance(end, Cut):
        return _Sums(kept=crossed.kept, entries=crossed.entries)
    sent, received = end.channel.sent_bytes, end.channel.received_bytes
    times = end.waited_s, end.flushed_s
    return _Sums(sent, received, end.dense_bytes, *times, crossed.kept, crossed.entries)
