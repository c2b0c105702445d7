"""Gradient exchange of one rank in a simulated run.

It is the counterpart of `harness.engine.exchange.bucket_lanes.Exchange`, which uses threads and a
real clock. Here all buckets are reduced in order once backward has ended. `harness.virtual.lanes`
then computes their times, and the rank's clock advances to the end of all lanes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor

from controllers.base import Observation
from harness.clock import RankClock
from harness.config.lanes import Lanes
from harness.engine.exchange.bucket_lanes import Charge
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.engine.exchange.stats import Clocks, Exchanged
from harness.engine.training.pace import Release
from harness.records.run_directory import Span
from harness.virtual import valueless
from harness.virtual.lanes import LaneOp, Layout, Work
from harness.virtual.levels import LevelCosts
from harness.virtual.workers import HomogeneousWorkers, SimulatedWorkers

SETTLING = 4  # exchanges that compile, fetch and allocate, which later ones do not
MOST_KEPT = 64  # densities
Kind = tuple[float, int, str]  # of an exchange: its density, how many buckets, and their first
Keep = Callable[[list[float], Sequence[Work]], None]  # ready times, all ranks' work


class RecordedExchange(NamedTuple):
    """Recorded exchange of one bucket."""

    ops: list[LaneOp]
    sent_bytes: int
    received_bytes: int


@dataclass
class ExchangeCache:
    """Record of `after` exchanges at each density, which are then repeated in turn. 0 records none.

    It is exact for methods whose period divides `after`. 12 suits most: two alternating factors, or
    an interval of 1, 2, 3, 4, 6 or 12. For other methods the mean is close.
    """

    after: int
    _kept: dict[Kind, list[list[RecordedExchange]]] = field(default_factory=dict, init=False)
    _turns: dict[Kind, int] = field(default_factory=dict, init=False)
    _seen: int = field(default=0, init=False)
    _now: list[RecordedExchange] | None = field(default=None, init=False)  # that are repeated
    _record: list[RecordedExchange] = field(default_factory=list, init=False)

    def begin(self, density: float, buckets: Sequence[Sequence[str]]) -> None:
        """Begin an exchange at this density. `buckets` lists the names of their parameters."""
        self._now, self._record = None, []
        self._seen += 1
        if not self.after or self._seen <= SETTLING:
            return
        kind = density, len(buckets), buckets[0][0]
        if kind not in self._kept and len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        kept = self._kept.setdefault(kind, [])
        if len(kept) == self.after:
            turn = self._turns.get(kind, 0)
            self._now, self._turns[kind] = kept[turn % self.after], turn + 1
        else:
            kept.append(self._record)

    def of(self, index: int) -> RecordedExchange | None:
        """Return the recorded exchange that bucket `index` repeats, or None to exchange it."""
        return self._now[index] if self._now is not None else None

    def add(self, done: RecordedExchange) -> None:
        self._record.append(done)


class Computed(NamedTuple):
    """Emulated times at which a step began, its forward ended, and its backward ended."""

    begin_s: float
    forward_s: float
    backward_s: float

    def parts_s(self, shares: Sequence[float]) -> list[float]:
        """Return the seconds of backward between consecutive `shares` of it, starting at 0."""
        took_s = self.backward_s - self.forward_s
        return [(end - start) * took_s for start, end in pairwise((0.0, *shares))]


class Repeated(NamedTuple):
    """Result of one exchange at one rank, without its times."""

    ready: list[float]  # share of backward that is done when each bucket is ready
    opening: list[LaneOp]
    buckets: list[list[LaneOp]]
    told: Mapping[str, Any]  # fields of `Exchanged` other than times


class PendingMean(NamedTuple):
    """Future of a bucket. The mean is ready. `wait` advances the clock to the exchange's end."""

    exchange: "VirtualExchange"

    def wait(self) -> None:
        self.exchange.wait()


@dataclass
class VirtualExchange:
    """Simulated gradient exchange of one rank, run on the rank's own thread."""

    reduction: Reduction
    workers: SimulatedWorkers
    clock: RankClock
    after_backward: bool  # no bucket is sent before the last is ready
    lanes: Lanes
    shares: Mapping[str, float]  # of backward; if empty, all buckets are ready at its end
    charge: Charge | None  # None if compression is measured
    cache: ExchangeCache = field(default_factory=lambda: ExchangeCache(0))  # one worker for all
    keep: Keep | None = None  # called once per exchange
    error: BaseException | None = None  # always None: errors are raised at once
    step: int = field(default=0, init=False)  # current or next step
    _release: Release | None = field(default=None, init=False)
    _begin_s: float = field(default=0.0, init=False)
    _backward_s: float = field(default=0.0, init=False)
    _ready: list[float] = field(default_factory=list, init=False)
    _held: list[tuple[BucketBuffers, Tensor | None]] = field(default_factory=list, init=False)
    _did: Clocks | None = field(default=None, init=False)
    _took: Exchanged | None = field(default=None, init=False)
    _seen: Observation | None = field(default=None, init=False)
    _durations_s: list[float] | None = field(default=None, init=False)

    @property
    def by_shape(self) -> bool:
        """True if a replay needs no gradient values: none are read and none are timed."""
        told = isinstance(self.workers, HomogeneousWorkers) and self.charge is not None
        norms = self.reduction.controller.needs_norms
        return told and not norms and self.reduction.compressor.by_shape

    def begin(self, release: Release | None) -> None:
        self._begin_s = self._backward_s = self.clock.now()
        self._release = release

    def begin_backward(self) -> None:
        self._backward_s = self.clock.now()

    def submit(
        self, laid: BucketBuffers, last: bool = False, pattern: Tensor | None = None
    ) -> "PendingMean":
        self._held.append((laid, pattern))
        if last:
            computed = self._computed()
            self._lay_out(self._perform(), computed)
            self._held = []
        return PendingMean(self)

    def repeat(self, done: Repeated) -> "PendingMean":
        """Time the recorded exchange `done` again, after backward has ended. Return its future."""
        self._lay_out(done, self._computed())
        return PendingMean(self)

    def wait(self) -> None:
        """Advance the clock until computation and exchange are both over."""
        assert self._did is not None
        self.clock.sleep_until(self._did.end_s)

    def _lay_out(self, done: Repeated, computed: Computed) -> None:
        self._ready = done.ready
        parts_s = computed.parts_s(done.ready)
        begin_s, forward_s = computed.begin_s, computed.forward_s - computed.begin_s
        work = Work(begin_s, forward_s, parts_s, done.opening, done.buckets)
        did = self.workers.meet_own(work, self._timed)
        self._did, self._durations_s = did, did.durations_s
        self._took = Exchanged(
            compute_end=computed.backward_s,
            backward_s=computed.backward_s - computed.forward_s,
            late_s=0.0,
            overlap_window_s=0.0 if self.after_backward else sum(parts_s[1:]),
            **did.totals()._asdict(),
            **done.told,
        )

    def agree(self, value: float, how: str) -> float:
        """Return the `min` or `mean` over workers. Its time counts in the next exchange."""
        return self.workers.agree(value, how)

    def finish(self) -> Exchanged:
        assert self._took is not None
        return self._took

    def observe(self, seen: Observation) -> None:
        """Keep `seen` for the next exchange. Advance `step`, and the clock to the end of it."""
        self._seen, self.step = seen, seen.step + 1
        self.clock.sleep_until(seen.time_s)

    def spans(self) -> list[Span]:
        """Return the lane spans of the last exchange, ordered by their begin."""
        did = sorted(self._did.done, key=lambda one: (one.start_s, one.bucket)) if self._did else []
        return [Span(self.step - 1, self.workers.rank, *one) for one in did]

    def close(self) -> None:
        return None

    def _computed(self) -> Computed:
        if self._release is None:
            return Computed(self._begin_s, self._backward_s, self.clock.now())
        return Computed(self._begin_s, self._release(0.0), self._release(1.0))

    def _perform(self) -> Repeated:
        """Reduce all submitted buckets. The clock does not advance."""
        workers, reduction = self.workers, self.reduction
        sent, received = workers.sent_bytes, workers.received_bytes
        inside = workers.inside_bytes
        reduction.open(self._seen, self._durations_s)
        self.cache.begin(reduction.density, [laid.names for laid, _ in self._held])
        opening = self._ops()
        ops = [self._reduce(index, *held) for index, held in enumerate(self._held)]
        told = {
            "sent_bytes": workers.sent_bytes - sent,
            "received_bytes": workers.received_bytes - received,
            "inside_bytes": workers.inside_bytes - inside,
            "dense_bytes": 4 * sum(laid.buffer.numel() for laid, _ in self._held) // workers.shards,
            **reduction.outcome(),
        }
        return Repeated(self._shares_done(), opening, ops, told)

    def _shares_done(self) -> list[float]:
        """Return, for each bucket, the share of backward that is done when the bucket is ready."""
        if not self.shares:
            return [1.0] * len(self._held)
        done, ready = 0.0, []
        for laid, _ in self._held:
            done += sum(self.shares[name] for name in laid.names)
            ready.append(done)
        return ready

    def _timed(self, works: Sequence[Work]) -> list[Clocks]:
        """Return the lanes of all workers' steps. Only the last worker to arrive runs this."""
        if self.keep:
            self.keep(self._ready, works)
        costs = self.workers.costs
        costs.noise.begin(self.step)
        if isinstance(costs, LevelCosts):
            works = costs.common(works)
        return Layout(works, costs, self.lanes, self.after_backward).workers()

    def _reduce(self, index: int, laid: BucketBuffers, pattern: Tensor | None) -> list[LaneOp]:
        """Reduce one bucket and return its operations. A repeated bucket skips the reduction."""
        workers, buffer = self.workers, laid.buffer
        if (done := self.cache.of(index)) is not None:
            workers.sent_bytes += done.sent_bytes
            workers.received_bytes += done.received_bytes
            return done.ops
        sent, received = workers.sent_bytes, workers.received_bytes
        if pattern is not None:
            buffer.copy_(pattern)
        phases_s = None  # compression is measured
        if self.charge is not None:
            took_s = self.charge(laid, self.reduction.density, self.step)
            phases_s = self.reduction.phases_s(took_s)
        workers.begin(phases_s)
        with valueless.on(buffer):
            self.reduction.reduce_bucket(self.step, index, laid)
        workers.end()
        ops = self._ops()
        self.cache.add(
            RecordedExchange(ops, workers.sent_bytes - sent, workers.received_bytes - received)
        )
        return ops

    def _ops(self) -> list[LaneOp]:
        """Return the operations since the last call, and clear them."""
        ops, self.workers.ops = self.workers.ops, []
        return ops
