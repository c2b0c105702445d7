"""The clocks of a worker's lanes, over packets and in virtual time: until when each is taken."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.config.lanes import Lanes

Interval = tuple[float, float]


class LaneSpan(NamedTuple):
    """Work of a lane on one bucket, with its times; bucket -1: none or all."""

    kind: str  # forward | backward | compress | communicate
    bucket: int
    start_s: float
    end_s: float


@dataclass
class Clocks:
    """Clocks of one worker's lanes in one step: when each is free, and what it did.

    Seconds are those of whatever clock the step began on, at `begin_s`.
    """

    begin_s: float
    lanes: Lanes
    device_s: float = field(init=False)
    aside_s: float = field(init=False)  # of compression's own lane
    wire_s: float = field(init=False)
    done: list[LaneSpan] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.device_s = self.aside_s = self.wire_s = self.begin_s

    @property
    def now_s(self) -> float:
        """The time of the lane that compresses."""
        return self.device_s if self.lanes.on_device else self.aside_s

    @property
    def end_s(self) -> float:
        """Time at which all lanes have done their work."""
        return max(self.device_s, self.aside_s, self.wire_s)

    def wait_until(self, time_s: float) -> None:
        """The lane that compresses does."""
        if self.lanes.on_device:
            self.device_s = max(self.device_s, time_s)
        else:
            self.aside_s = max(self.aside_s, time_s)

    def compute(self, kind: str, bucket: int, took_s: float) -> None:
        start_s, self.device_s = self.device_s, self.device_s + took_s
        self.done.append(LaneSpan(kind, bucket, start_s, self.device_s))

    def compress(self, bucket: int, took_s: float) -> None:
        if took_s > 0:
            start_s = self.now_s
            self.wait_until(start_s + took_s)
            self.done.append(LaneSpan("compress", bucket, start_s, self.now_s))

    def send(self, bucket: int, start_s: float, end_s: float) -> None:
        self.wire_s = max(self.wire_s, start_s, end_s)
        self.done.append(LaneSpan("communicate", bucket, start_s, max(start_s, end_s)))

    def durations_s(self) -> list[float]:
        """Durations of the collectives that buckets needed."""
        sent = (one for one in self.done if one.kind == "communicate" and one.bucket >= 0)
        return [one.end_s - one.start_s for one in sent]

    def took_s(self, kind: str) -> float:
        return sum(one.end_s - one.start_s for one in self.done if one.kind == kind)

    def exposed_s(self) -> float:
        """Seconds of communication in which the worker neither computed nor compressed."""
        sent = [(one.start_s, one.end_s) for one in self.done if one.kind == "communicate"]
        busy = [(one.start_s, one.end_s) for one in self.done if one.kind != "communicate"]
        sent_s = sum(end_s - start_s for start_s, end_s in sent)
        return sent_s - overlap_s(sorted(sent), merged(busy))


def overlap_s(spans: Sequence[Interval], others: Sequence[Interval]) -> float:
    """Seconds in which one of `spans` and one of `others` go on at the same time.

    Both are in order, and no two of the same overlap.
    """
    total, rest = 0.0, deque(others)
    for start_s, end_s in spans:
        while rest and rest[0][1] <= start_s:
            rest.popleft()
        for since_s, until_s in rest:
            if since_s >= end_s:
                break
            total += min(end_s, until_s) - max(start_s, since_s)
    return total


def merged(spans: Iterable[Interval]) -> list[Interval]:
    """Union of the spans, as disjoint spans in order."""
    union: list[Interval] = []
    for start_s, end_s in sorted(spans):
        if union and start_s <= union[-1][1]:
            union[-1] = union[-1][0], max(end_s, union[-1][1])
        else:
            union.append((start_s, end_s))
    return union
