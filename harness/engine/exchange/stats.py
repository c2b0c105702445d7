"""When the lanes of a worker are busy, and what an exchange took: times, bytes, norms.

`Clocks` serves runs over packets and in virtual time alike. `ExchangeStats` accounts for one
exchange over packets; `CollectivesTable` writes its collectives to collectives.csv.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from compressors import kernels
from controllers.base import Measurement
from harness.clock import Clock
from harness.config.lanes import Lanes
from harness.engine.exchange.collectives import Workers
from harness.records.run_directory import Collective, Table

Interval = tuple[float, float]
Release = Callable[[float], float]  # share of backward done -> clock time in real seconds
CHUNK = 1 << 15  # elements converted to float64 at a time: they stay in the cache


class LaneSpan(NamedTuple):
    """Work of a lane on one bucket, with its times; bucket -1 stands for none or all."""

    kind: str  # forward | backward | compress | communicate
    bucket: int
    start_s: float
    end_s: float


class LaneTotals(NamedTuple):
    """Seconds of a step, summed over buckets."""

    compress_s: float
    comm_s: float
    exposed_s: float  # of communication, while the worker neither computed nor compressed


@dataclass
class Clocks:
    """The lanes of one worker in one step: when each is free, and what each did.

    Seconds are those of the clock on which the step began, at `begin_s`.
    """

    begin_s: float
    lanes: Lanes
    device_s: float = field(init=False)
    aside_s: float = field(init=False)  # lane of compression, if it has one of its own
    wire_s: float = field(init=False)
    done: list[LaneSpan] = field(default_factory=list, init=False)
    durations_s: list[float] = field(default_factory=list, init=False)  # of buckets' collectives

    def __post_init__(self) -> None:
        self.device_s = self.aside_s = self.wire_s = self.begin_s

    @property
    def now_s(self) -> float:
        """Time at which the compressing lane is free."""
        return self.device_s if self.lanes.on_device else self.aside_s

    @property
    def end_s(self) -> float:
        """Time at which all lanes are free."""
        return max(self.device_s, self.aside_s, self.wire_s)

    def wait_until(self, time_s: float) -> None:
        """Block the compressing lane until `time_s`."""
        if self.lanes.on_device:
            self.device_s = max(self.device_s, time_s)
        else:
            self.aside_s = max(self.aside_s, time_s)

    def compute(self, kind: str, bucket: int, took_s: float) -> None:
        """Occupy the device for `took_s` seconds of `kind`, forward or backward."""
        start_s, self.device_s = self.device_s, self.device_s + took_s
        self.done.append(LaneSpan(kind, bucket, start_s, self.device_s))

    def compress(self, bucket: int, took_s: float) -> None:
        """Occupy the compressing lane for `took_s` seconds."""
        if took_s > 0:
            start_s = self.now_s
            self.wait_until(start_s + took_s)
            self.done.append(LaneSpan("compress", bucket, start_s, self.now_s))

    def send(self, bucket: int, spans: Iterable[Interval]) -> None:
        """Occupy the wire for each of `spans`, one collective each."""
        for start_s, end_s in spans:
            end_s = max(start_s, end_s)
            self.wire_s = max(self.wire_s, end_s)
            self.done.append(LaneSpan("communicate", bucket, start_s, end_s))
            if bucket >= 0:
                self.durations_s.append(end_s - start_s)

    def totals(self) -> LaneTotals:
        """Sum up the step so far."""
        sent: list[Interval] = []
        busy: list[Interval] = []
        compress_s = comm_s = 0.0
        for kind, _, start_s, end_s in self.done:
            (sent if kind == "communicate" else busy).append((start_s, end_s))
            if kind == "communicate":
                comm_s += end_s - start_s
            elif kind == "compress":
                compress_s += end_s - start_s
        exposed_s = comm_s - overlap_s(sorted(sent), merged(busy))
        return LaneTotals(compress_s, comm_s, exposed_s)


def overlap_s(spans: Sequence[Interval], others: Sequence[Interval]) -> float:
    """Seconds during which one of `spans` and one of `others` go on at the same time.

    Both are in order, and no two spans of the same list overlap.
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


class Norms(NamedTuple):
    """Norms of one exchange at one worker, over the whole gradient; NaN if not measured."""

    grad_norm: float = nan
    residual_norm: float = nan
    gain: float = nan
    captured: float = nan


@dataclass
class SquaredNorms:
    """Sums of squares over the buckets of an exchange so far."""

    gradient: float = 0.0  # g
    residual: float = 0.0  # e
    compensated: float = 0.0  # g + e
    unsent: float = 0.0

    def add_input(self, gradient: Tensor, residual: Tensor | None) -> None:
        """Add one bucket's g and e, each [n], before they are added; e is None without feedback."""
        own = square(gradient)
        self.gradient += own
        if residual is None:
            self.compensated += own
            return
        self.residual += square(residual)
        pairs = zip(_chunks(gradient), _chunks(residual), strict=True)
        self.compensated += sum(square(g + e) for g, e in pairs)

    def add_unsent(self, unsent: Tensor | None) -> None:
        """Add the square of what one bucket left unsent, [n]; None adds nothing."""
        if unsent is not None:
            self.unsent += square(unsent)

    def norms(self) -> Norms:
        """Norms so far; the sent part counts as orthogonal to the rest, as with top-k."""
        sent = max(0.0, self.compensated - self.unsent)
        return Norms(
            grad_norm=self.gradient**0.5,
            residual_norm=self.residual**0.5,
            gain=_ratio(sent, self.gradient),
            captured=_ratio(sent, self.compensated),
        )


def square(x: Tensor) -> float:
    """|x|^2 of `x`, float32 [n], summed in float64: finite if and only if every element is."""
    if (native := kernels.of(x)) is not None:
        return float(native.signs.squares(x.numpy()))
    return sum(float(torch.linalg.vector_norm(part.double()).square()) for part in _chunks(x))


def _chunks(x: Tensor) -> Sequence[Tensor]:
    return x.split(CHUNK) if x.is_cpu else (x,)


def _ratio(part: float, whole: float) -> float:
    """Quotient `part / whole`; 1 for 0 / 0, as nothing was left out."""
    if whole == 0:
        return inf if part else 1.0
    return part / whole


@dataclass(frozen=True, kw_only=True)
class Exchanged(Measurement):
    """Durations, in real seconds, and bytes of one exchange."""

    compute_end: float  # clock time at which backward had ended, without compression between
    late_s: float  # delay of this machine behind the emulated one; 0 without pacing


@dataclass
class ExchangeStats:
    """Account of the exchange in progress; times are real seconds on the clock.

    `clocks` are those of the emulated device, if there is one: they say when its work would be
    done, and this machine keeps to them unless it is late. Lateness of compression counts only if
    the network waited for it; otherwise later compression may make up for it.
    """

    workers: Workers  # whose bytes are counted from here on
    clock: Clock
    clocks: Clocks
    release: Release | None
    backward_begin: float
    buckets: int = 0  # handed over so far
    share: float = 0.0  # of backward, done by these buckets
    dense_bytes: int = 0
    first_ready: float | None = None  # when the first bucket could be sent
    compute_end: float = 0.0
    computes: bool = False  # True if parts of backward follow the compression in progress
    opened_s: float = field(default=0.0, init=False)  # when the density was chosen
    _overtime_s: float = field(default=0.0, init=False)  # of backward
    _late_s: float = field(default=0.0, init=False)  # of compression, so far
    _made_wait_s: float = field(default=0.0, init=False)  # lateness for which the network waited

    def __post_init__(self) -> None:
        self._sent_before = self.workers.sent_bytes
        self._received_before = self.workers.received_bytes

    # Called by the training thread.

    def ready(self, now: float, share: float, elements: int) -> float | None:
        """Record a bucket that is handed over after its `share` of backward.

        Return the emulated seconds of that share; None without pacing.
        """
        before, self.share = self.share, self.share + share
        self.buckets += 1
        self.dense_bytes += 4 * elements
        self.compute_end = self.release(self.share) if self.release else now
        return self.compute_end - self.release(before) if self.release else None

    # Called by the lane thread.

    def opened(self, spans: list[Interval]) -> None:
        """Record that the density is chosen, by collectives at these times."""
        self.clocks.send(-1, spans)
        self.opened_s = self.clocks.wire_s

    def computed(self, bucket: int, handed: float, part_s: float | None, last: bool) -> None:
        """Record that backward has reached a bucket, which was `handed` over here.

        A later bucket may make up for its lateness, but not the last.
        """
        clocks = self.clocks
        if bucket == 0:
            clocks.compute("forward", -1, max(0.0, self.backward_begin - clocks.device_s))
        until_handed_s = max(0.0, handed - clocks.device_s)
        clocks.compute("backward", bucket, until_handed_s if part_s is None else part_s)
        if last:
            self._overtime_s = max(0.0, handed - clocks.device_s)
            clocks.compute("backward", bucket, self._overtime_s)

    def compressed(self, bucket: int, took_s: float, charged_s: float | None) -> None:
        """Charge a bucket's compression: `charged_s` of the emulated device, or `took_s`."""
        factor = self.clocks.lanes.interference if self.computes else 1.0
        self.clocks.compress(bucket, factor * (took_s if charged_s is None else charged_s))
        if charged_s is not None:
            self._late_s = max(0.0, self.clock.now() - self.clocks.now_s)

    def arrived(self, bucket: int, spans: list[Interval]) -> None:
        """Record the wire times of collectives for which compression has waited."""
        self.clocks.send(bucket, spans)
        arrival = spans[-1][1]
        if arrival > self.clocks.now_s:
            self._made_wait_s, self._late_s = self._made_wait_s + self._late_s, 0.0
        self.clocks.wait_until(arrival)

    # Called by the training thread, once all buckets are reduced.

    def total(self, outcome: dict[str, float]) -> Exchanged:
        """Sum up the exchange, which has ended; `outcome` is `Reduction.outcome()`."""
        workers = self.workers
        compute_end = self.compute_end + self._overtime_s
        begin = self.compute_end if self.first_ready is None else self.first_ready
        return Exchanged(
            compute_end=compute_end,
            backward_s=compute_end - self.backward_begin,
            late_s=self._overtime_s + self._made_wait_s + self._late_s,
            overlap_window_s=self.compute_end - begin,
            sent_bytes=workers.sent_bytes - self._sent_before,
            received_bytes=workers.received_bytes - self._received_before,
            dense_bytes=self.dense_bytes,
            **self.clocks.totals()._asdict(),
            **outcome,
        )


class CollectivesTable:
    """collectives.csv of one rank, of whose `workers` it records every collective."""

    def __init__(self, run_dir: Path, rank: int, workers: Workers, clock: Clock) -> None:
        self._table = Table(run_dir, "collectives.csv")
        self._rank, self._workers, self._clock = rank, workers, clock

    def write(self, ended: float) -> float:
        """Append the collectives of a step that has ended; return `ended`, its time.

        Rows have emulated seconds. The clock must not have been paused within the step.
        """
        counted, self._workers.counted = self._workers.counted, []
        origin, per_s = self._clock.monotonic(0.0), 1 / self._clock.dilation
        self._table.append(
            *(
                Collective((begin - origin) * per_s, (end - origin) * per_s, self._rank, *nbytes)
                for begin, end, *nbytes in counted
            )
        )
        return ended
