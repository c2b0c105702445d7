"""Traffic over the cuts of a step, as differences of counters that only grow."""

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

from compressors.activations.operator import Crossed, Cut
from harness.engine.pipeline.device import Device
from harness.engine.pipeline.gradient_norm import GradientNorm
from harness.engine.pipeline.object_gather import ObjectGather
from harness.engine.pipeline.stage_io import Inlet, Outlet
from harness.engine.pipeline.stage_traffic import StageTraffic

Source = Inlet | Outlet | Cut | ObjectGather | Device | GradientNorm


class _Sums(NamedTuple):
    activation_bytes: int = 0
    received_bytes: int = 0
    dense_activation_bytes: int = 0
    flushed_s: float = 0.0
    waited_s: float = 0.0
    compress_s: float = 0.0
    late_s: float = 0.0
    kept: int = 0
    entries: int = 0
    norm_bytes: int = 0


class TrafficMeter:
    """Reader of a stage's cut ends, device and gathers, or of the operators in one process."""

    def __init__(self, ends: Sequence[Source]) -> None:
        self._ends = ends
        self._before = self._sums()

    def read(self) -> StageTraffic:
        """Return the traffic since the last call."""
        before, self._before = self._before, self._sums()
        fresh = _Sums._make(now - then for now, then in zip(self._before, before, strict=True))
        kept, entries, told = fresh.kept, fresh.entries, fresh._asdict()
        del told["kept"], told["entries"]
        return StageTraffic(achieved_activation_density=kept / entries if entries else nan, **told)

    def _sums(self) -> _Sums:
        each = map(_counters, self._ends)
        return _Sums._make(map(sum, zip(_Sums(), *each, strict=True)))


def _counters(end: Source) -> _Sums:
    if isinstance(end, ObjectGather):
        return _Sums(end.workers.sent_bytes, end.workers.received_bytes)
    if isinstance(end, GradientNorm):
        received = end.received_bytes
        return _Sums(norm_bytes=end.sent_bytes, received_bytes=received, flushed_s=end.waited_s)
    if isinstance(end, Device):
        return _Sums(waited_s=end.waited_s, compress_s=end.compress_s, late_s=end.late_s)
    crossed = Crossed() if isinstance(end, Inlet) else end.crossed
    if isinstance(end, Cut):
        return _Sums(kept=crossed.kept, entries=crossed.entries)
    sent, received = end.channel.sent_bytes, end.channel.received_bytes
    kept = {"kept": crossed.kept, "entries": crossed.entries}
    return _Sums(sent, received, end.dense_bytes, end.flushed_s, **kept)
