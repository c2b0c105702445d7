"""Timing, bytes and norms of a gradient exchange.

Real and simulated runs both use `Clocks`. `ExchangeStats` accounts for one exchange over a real
network. `CollectivesTable` writes collectives.csv.
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
    """A time span in which a lane works on one bucket. Bucket -1 means no bucket or all buckets."""

    kind: str  # forward | backward | compress | communicate
    bucket: int
    start_s: float
    end_s: float


class LaneTotals(NamedTuple):
    """Compression and communication times of one step in seconds, summed over buckets."""

    compress_s: float
    comm_s: float
    exposed_s: float  # of communication, while the worker neither computed nor compressed


@dataclass
class Clocks:
    """Schedule of one worker's lanes in one step: when each lane is free, and its spans so far.

    Times are seconds on the caller's clock. The step begins at `begin_s`.
    """

    begin_s: float
    lanes: Lanes
    device_s: float = field(init=False)
    aside_s: float = field(init=False)  # the compression lane, if separate from the device
    wire_s: float = field(init=False)
    done: list[LaneSpan] = field(default_factory=list, init=False)
    durations_s: list[float] = field(default_factory=list, init=False)  # of bucket collectives

    def __post_init__(self) -> None:
        self.device_s = self.aside_s = self.wire_s = self.begin_s

    @property
    def now_s(self) -> float:
        """The time at which the compression lane is free."""
        return self.device_s if self.lanes.on_device else self.aside_s

    @property
    def end_s(self) -> float:
        """The time at which all lanes are free."""
        return max(self.device_s, self.aside_s, self.wire_s)

    def wait_until(self, time_s: float) -> None:
        """Keep the compression lane busy until `time_s`."""
        if self.lanes.on_device:
            self.device_s = max(self.device_s, time_s)
        else:
            self.aside_s = max(self.aside_s, time_s)

    def compute(self, kind: str, bucket: int, took_s: float) -> None:
        """Occupy the device for `took_s` seconds. `kind` is "forward" or "backward"."""
        start_s, self.device_s = self.device_s, self.device_s + took_s
        self.done.append(LaneSpan(kind, bucket, start_s, self.device_s))

    def compress(self, bucket: int, took_s: float) -> None:
        """Occupy the compression lane for `took_s` seconds."""
        if took_s > 0:
            start_s = self.now_s
            self.wait_until(start_s + took_s)
            self.done.append(LaneSpan("compress", bucket, start_s, self.now_s))

    def send(self, bucket: int, spans: Iterable[Interval]) -> None:
        """Occupy the wire during `spans`, each the begin and end of one collective."""
        for start_s, end_s in spans:
            end_s = max(start_s, end_s)
            self.wire_s = max(self.wire_s, end_s)
            self.done.append(LaneSpan("communicate", bucket, start_s, end_s))
            if bucket >= 0:
                self.durations_s.append(end_s - start_s)

    def totals(self) -> LaneTotals:
        """Return the seconds of compression and communication in this step so far."""
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
    """Return the seconds in both a span of `spans` and of `others`, each sorted and disjoint."""
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
    """Return the union of the spans as disjoint spans in order."""
    union: list[Interval] = []
    for start_s, end_s in sorted(spans):
        if union and start_s <= union[-1][1]:
            union[-1] = union[-1][0], max(end_s, union[-1][1])
        else:
            union.append((start_s, end_s))
    return union


class Norms(NamedTuple):
    """Norms of one worker's whole gradient in one exchange. They are NaN if not measured."""

    grad_norm: float = nan
    residual_norm: float = nan
    gain: float = nan
    captured: float = nan


@dataclass
class SquaredNorms:
    """Running sums of squares over the buckets of one exchange."""

    gradient: float = 0.0  # g
    residual: float = 0.0  # e
    compensated: float = 0.0  # g + e
    unsent: float = 0.0

    def add_input(self, gradient: Tensor, residual: Tensor | None) -> None:
        """Add squares of a bucket's g and e (or None), [n], before e is added to g."""
        own = square(gradient)
        self.gradient += own
        if residual is None:
            self.compensated += own
            return
        self.residual += square(residual)
        pairs = zip(_chunks(gradient), _chunks(residual), strict=True)
        self.compensated += sum(square(g + e) for g, e in pairs)

    def add_unsent(self, unsent: Tensor | None) -> None:
        """Add the square of a bucket's unsent part, [n]. Do nothing for None."""
        if unsent is not None:
            self.unsent += square(unsent)

    def norms(self) -> Norms:
        """Return the norms so far, as if sent and unsent parts were orthogonal, as in top-k."""
        sent = max(0.0, self.compensated - self.unsent)
        return Norms(
            grad_norm=self.gradient**0.5,
            residual_norm=self.residual**0.5,
            gain=_ratio(sent, self.gradient),
            captured=_ratio(sent, self.compensated),
        )


def square(x: Tensor) -> float:
    """Return |x|^2 of float32 `x` [n], summed in float64. It is finite iff every element is."""
    if (native := kernels.of(x)) is not None:
        return float(native.signs.squares(x.numpy()))
    return sum(float(torch.linalg.vector_norm(part.double()).square()) for part in _chunks(x))


def _chunks(x: Tensor) -> Sequence[Tensor]:
    return x.split(CHUNK) if x.is_cpu else (x,)


def _ratio(part: float, whole: float) -> float:
    """Return part / whole, 1 for 0 / 0 (nothing was lost), and inf for any other division by 0."""
    if whole == 0:
        return inf if part else 1.0
    return part / whole


@dataclass(frozen=True, kw_only=True)
class Exchanged(Measurement):
    """Durations in real seconds, bytes and norms of one finished exchange."""

    compute_end: float  # clock time at the end of backward, compression excluded
    late_s: float  # lag of this machine behind the emulated one; 0 without pacing


@dataclass
class ExchangeStats:
    """Measurements of one exchange in progress over a real network, in real seconds on the clock.

    `clocks` holds the schedule: when an emulated device would be done. This machine follows it
    unless it is late. Late compression only counts if the network waited for it, because later
    compression may catch up.
    """

    workers: Workers  # their bytes count from now on
    clock: Clock
    clocks: Clocks
    release: Release | None
    backward_begin: float
    buckets: int = 0  # handed over so far
    share: float = 0.0  # of backward, done by these buckets
    dense_bytes: int = 0
    first_ready: float | None = None  # when the first bucket could be sent
    compute_end: float = 0.0
    computes: bool = False  # True if backward runs beside the current compression
    opened_s: float = field(default=0.0, init=False)  # when the density was chosen
    _overtime_s: float = field(default=0.0, init=False)  # of backward
    _late_s: float = field(default=0.0, init=False)  # of compression, so far
    _made_wait_s: float = field(default=0.0, init=False)  # lateness that delayed the network

    def __post_init__(self) -> None:
        self._sent_before = self.workers.sent_bytes
        self._received_before = self.workers.received_bytes
        self._inside_before = self.workers.inside_bytes

    # Called by the training thread.

    def ready(self, now: float, share: float, elements: int) -> float | None:
        """Record a bucket that backward hands over after computing another `share` of it.

        Return the time of that share on the emulated device, or None without pacing.
        """
        before, self.share = self.share, self.share + share
        self.buckets += 1
        self.dense_bytes += 4 * elements
        self.compute_end = self.release(self.share) if self.release else now
        return self.compute_end - self.release(before) if self.release else None

    # Called by the lane thread.

    def opened(self, spans: list[Interval]) -> None:
        """Record the `spans` of the collectives that chose the density."""
        self.clocks.send(-1, spans)
        self.opened_s = self.clocks.wire_s

    def computed(self, bucket: int, handed: float, part_s: float | None, last: bool) -> None:
        """Record that backward reached `bucket`, which this machine handed over at time `handed`.

        `part_s` is the emulated time of its part of backward, None without pacing. Only lateness of
        the `last` bucket counts, because later buckets may catch up.
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
        """Record compression of a bucket: `charged_s`, or if that is None `took_s` as measured."""
        factor = self.clocks.lanes.interference if self.computes else 1.0
        self.clocks.compress(bucket, factor * (took_s if charged_s is None else charged_s))
        if charged_s is not None:
            self._late_s = max(0.0, self.clock.now() - self.clocks.now_s)

    def arrived(self, bucket: int, spans: list[Interval]) -> None:
        """Record the wire `spans` of collectives that compression of this bucket waited for."""
        self.clocks.send(bucket, spans)
        arrival = spans[-1][1]
        if arrival > self.clocks.now_s:
            self._made_wait_s, self._late_s = self._made_wait_s + self._late_s, 0.0
        self.clocks.wait_until(arrival)

    # Called by the training thread, once all buckets are reduced.

    def total(self, outcome: dict[str, float]) -> Exchanged:
        """Return the totals of the exchange. `outcome` comes from `Reduction.outcome()`."""
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
            inside_bytes=workers.inside_bytes - self._inside_before,
            dense_bytes=self.dense_bytes // workers.shards,
            **self.clocks.totals()._asdict(),
            **outcome,
        )


class CollectivesTable:
    """Writer of collectives.csv for one rank's collectives."""

    def __init__(self, run_dir: Path, rank: int, workers: Workers, clock: Clock) -> None:
        self._table = Table(run_dir, "collectives.csv")
        self._rank, self._workers, self._clock = rank, workers, clock

    def write(self, ended: float) -> float:
        """Append the collectives since the last call. Return `ended`, the end of the step.

        Rows are in emulated seconds. The clock must not have been paused within the step.
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
