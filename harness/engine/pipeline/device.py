"""Computation time of a stage: measured, or its share of the model's published times.

An emulated device does one thing at a time: one micro-batch in one direction, once its input has
arrived and earlier work is done. Its output leaves when its time is over. Compression and
decompression at a cut take their real time. A stage's share of the model's times, forward and
backward alike, is that of its multiply-adds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.clock import RankClock
from harness.engine.exchange.stats import LaneSpan
from harness.engine.training.pace import Release


class StageTimes(NamedTuple):
    """Real seconds of one micro-batch, forward and backward."""

    forward_s: float
    backward_s: float


@dataclass
class Device:
    """Clock of one pipeline stage, which paces its computation.

    With `costs`, a micro-batch takes as long as on the emulated device, otherwise its real time. As
    a `Pace` it releases no gradients. The real seconds outside computation only grow.
    """

    clock: RankClock
    costs: StageTimes | None = None
    waited_s: float = field(default=0.0, init=False)  # for what had not arrived
    compress_s: float = field(default=0.0, init=False)  # encoding; decoding in idle time
    late_s: float = field(default=0.0, init=False)  # that computing took beyond its time
    spans: list[LaneSpan] = field(default_factory=list, init=False)  # in this step, by micro-batch
    _free_s: float = field(default=0.0, init=False)  # on the clock: all before is done
    _begin_s: float = field(default=0.0, init=False)  # of the current computation

    def release(self, begin: float) -> Release | None:
        """Return None, since the computation decides when gradients may leave."""
        self._free_s = begin
        self.spans.clear()
        return None

    def rest(self) -> None:
        """Note that there is nothing to do but to wait for the next message."""
        if self.costs is None:
            self._free_s = self.clock.now()

    def begin(self, received_s: float = 0.0, decoded_s: float = 0.0) -> None:
        """Begin a micro-batch whose message was received and decoded at these times."""
        measured = self.costs is None
        self._begin_s = self.clock.now() if measured else max(self._free_s, decoded_s)
        idle_s = self._begin_s - self._free_s
        decoding_s = min(idle_s, max(0.0, decoded_s - max(self._free_s, received_s)))
        self.waited_s += idle_s - decoding_s
        self.compress_s += decoding_s

    def end(self, way: str, part: int = 0) -> None:
        """End the computation `way`, forward or backward, when an emulated device would be done."""
        now_s = self.clock.now()
        took_s = getattr(self.costs, f"{way}_s") if self.costs else 0.0
        due_s = self._begin_s + took_s
        self._free_s = max(due_s, now_s)
        self.spans.append(LaneSpan(way, part, self._begin_s, self._free_s))
        if self.costs is None:
            return
        if due_s > now_s:
            self.clock.sleep_until(due_s)
        else:
            self.late_s += now_s - due_s

    @contextmanager
    def compressing(self, entries: int, part: int = 0) -> Iterator[None]:
        """Context in which the stage prepares a message of `entries` elements."""
        begin_s = self.clock.now()
        with self.clock.compressing(entries):
            yield
        took_s = self.clock.now() - begin_s
        self.spans.append(LaneSpan("compress", part, begin_s, begin_s + took_s))
        self._free_s += took_s
        self.compress_s += took_s
