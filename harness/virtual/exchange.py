"""The exchange of a rank's gradients in virtual time.

`harness.engine.exchange.bucket_lanes.Exchange` does the same over packets with threads and a real
clock. Here buckets are reduced in order, once backward has ended; `harness.virtual.lanes` then lays
out the times, and the clock of the rank advances to the end of all lanes.
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
from harness.virtual.exchange_cache import ExchangeCache, RecordedExchange
from harness.virtual.lanes import LaneOp, Layout, Work
from harness.virtual.workers import HomogeneousWorkers, SimulatedWorkers


class Computed(NamedTuple):
    """When a step began, and its forward and its backward ended, in emulated seconds."""

    begin_s: float
    forward_s: float
    backward_s: float

    def parts_s(self, shares: Sequence[float]) -> list[float]:
        """Seconds of backward, cut where it has done these `shares`."""
        took_s = self.backward_s - self.forward_s
        return [(end - start) * took_s for start, end in pairwise((0.0, *shares))]


class Repeated(NamedTuple):
    """One exchange at a rank, without its times."""

    ready: list[float]  # shares of backward that are done when each bucket is there
    opening: list[LaneOp]
    buckets: list[list[LaneOp]]
    told: Mapping[str, Any]  # fields of `Exchanged` that are no times


class PendingMean(NamedTuple):
    """A bucket of the exchange that was handed over last; its mean is there, and not its time."""

    exchange: "VirtualExchange"

    def wait(self) -> None:
        self.exchange.wait()


Keep = Callable[[list[float], Sequence[Work]], None]  # when buckets are ready, and all ranks' work


@dataclass
class VirtualExchange:
    """Exchange of a rank's gradients, on the thread of its rank."""

    reduction: Reduction
    workers: SimulatedWorkers
    clock: RankClock
    after_backward: bool  # no bucket is sent before the last is ready
    lanes: Lanes
    shares: Mapping[str, float]  # of backward; empty: all buckets are there when it has ended
    charge: Charge | None  # None: compression is measured
    cache: ExchangeCache = field(default_factory=lambda: ExchangeCache(0))  # of who stands for all
    keep: Keep | None = None  # is told of every exchange once
    error: BaseException | None = None  # what fails is raised at once
    step: int = field(default=0, init=False)  # that is next, or goes on
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
        """True if a replay's gradients need no values: nobody looks at them, nor is timed."""
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
        """Begin once more an exchange that was done, once backward has ended."""
        self._lay_out(done, self._computed())
        return PendingMean(self)

    def wait(self) -> None:
        """Let the time go by until both computation and exchange are over."""
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
        """One value for all workers, between two exchanges; its time is the next one's."""
        return self.workers.agree(value, how)

    def finish(self) -> Exchanged:
        assert self._took is not None
        return self._took

    def observe(self, seen: Observation) -> None:
        """Go on after the observed step: its end is this clock's beginning."""
        self._seen, self.step = seen, seen.step + 1
        self.clock.sleep_until(seen.time_s)

    def spans(self) -> list[Span]:
        """Spans of the last exchange, by when each began."""
        did = sorted(self._did.done, key=lambda one: (one.start_s, one.bucket)) if self._did else []
        return [Span(self.step - 1, self.workers.rank, *one) for one in did]

    def close(self) -> None:
        return None

    def _computed(self) -> Computed:
        if self._release is None:
            return Computed(self._begin_s, self._backward_s, self.clock.now())
        return Computed(self._begin_s, self._release(0.0), self._release(1.0))

    def _perform(self) -> Repeated:
        """Reduce the buckets that are held, in no time."""
        workers, reduction = self.workers, self.reduction
        sent, received = workers.sent_bytes, workers.received_bytes
        reduction.open(self._seen, self._durations_s)
        self.cache.begin(reduction.density, [laid.names for laid, _ in self._held])
        opening = self._ops()
        ops = [self._reduce(index, *held) for index, held in enumerate(self._held)]
        told = {
            "sent_bytes": workers.sent_bytes - sent,
            "received_bytes": workers.received_bytes - received,
            "dense_bytes": 4 * sum(laid.buffer.numel() for laid, _ in self._held),
            **reduction.outcome(),
        }
        return Repeated(self._shares_done(), opening, ops, told)

    def _shares_done(self) -> list[float]:
        """Shares of backward that are done when each bucket is there."""
        if not self.shares:
            return [1.0] * len(self._held)
        done, ready = 0.0, []
        for laid, _ in self._held:
            done += sum(self.shares[name] for name in laid.names)
            ready.append(done)
        return ready

    def _timed(self, works: Sequence[Work]) -> list[Clocks]:
        """Lay out all workers' steps; done once, by the worker that comes last."""
        if self.keep:
            self.keep(self._ready, works)
        costs = self.workers.costs
        costs.noise.begin(self.step)
        return Layout(works, costs, self.lanes, self.after_backward).workers()

    def _reduce(self, index: int, laid: BucketBuffers, pattern: Tensor | None) -> list[LaneOp]:
        """Reduce one bucket and return its costs; a repeated one needs no tensor."""
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
        """Costed operations since the last call."""
        ops, self.workers.ops = self.workers.ops, []
        return ops
