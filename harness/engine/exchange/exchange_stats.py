"""What an exchange does when, on the lanes of its rank; and what that comes to in the end."""

from collections.abc import Callable
from dataclasses import dataclass, field

from controllers.base import Measurement
from harness.clock import Clock
from harness.engine.exchange.clocks import Clocks, Interval
from harness.engine.exchange.norms import Norms
from harness.engine.exchange.workers import Workers

Release = Callable[[float], float]  # share of backward done -> clock time in real seconds


@dataclass(frozen=True, kw_only=True)
class Exchanged(Measurement):
    """Durations, in real seconds, and bytes of one exchange."""

    compute_end: float  # when backward had ended on the clock, but for compression between
    late_s: float  # how much this machine missed the times of the emulated one; 0 without pacing


@dataclass
class ExchangeStats:
    """Account of the exchange in progress; times are real seconds on the clock.

    `clocks` are those of the emulated device, where there is one: they tell when things would be
    done there, and this machine keeps to them unless it is late. What compression catches up is
    forgiven, but where the network has waited for it.
    """

    workers: Workers  # whose bytes are counted from here on
    clock: Clock
    clocks: Clocks
    release: Release | None
    backward_begin: float
    buckets: int = 0  # handed over
    share: float = 0.0  # of backward, of these
    dense_bytes: int = 0
    first_ready: float | None = None
    compute_end: float = 0.0
    computes: bool = False  # parts of backward are still to come, after what is compressed now
    _opened: float = field(default=0.0, init=False)  # when the density was chosen
    _overtime_s: float = field(default=0.0, init=False)  # of backward
    _late_s: float = field(default=0.0, init=False)  # compression, so far
    _made_wait_s: float = field(default=0.0, init=False)  # that late, when the network waited

    def __post_init__(self) -> None:
        self._sent_before = self.workers.sent_bytes
        self._received_before = self.workers.received_bytes

    # Called by the training thread.

    def ready(self, now: float, share: float, elements: int) -> float | None:
        """Record that a bucket is handed over, after its `share` of backward; None: until now."""
        before, self.share = self.share, self.share + share
        self.buckets += 1
        self.dense_bytes += 4 * elements
        self.compute_end = self.release(self.share) if self.release else now
        return self.compute_end - self.release(before) if self.release else None

    def sendable(self) -> None:
        """The buckets handed over so far may be sent."""
        if self.first_ready is None:
            self.first_ready = self.compute_end

    # Called by the thread that runs the lanes.

    def opened(self, spans: list[Interval]) -> None:
        """The density is chosen, by collectives at these times: buckets can be compressed."""
        self._occupy_wire(-1, spans)
        self._opened = self.clocks.wire_s

    def computed(self, bucket: int, handed: float, part_s: float | None, last: bool) -> None:
        """Backward has come to this bucket, which was `handed` over here.

        A later one may catch up what it is late, but not the last.
        """
        if bucket == 0:
            self._compute_until("forward", -1, self.backward_begin)
        if part_s is None:
            self._compute_until("backward", bucket, handed)
        else:
            self.clocks.compute("backward", bucket, part_s)
        if last:
            self._overtime_s = max(0.0, handed - self.clocks.device_s)
            self._compute_until("backward", bucket, handed)

    def begins(self) -> None:
        """A bucket is started."""
        self.clocks.wait_until(max(self.clocks.device_s, self._opened))

    def compressed(self, bucket: int, took_s: float, told_s: float | None) -> None:
        """Charge a bucket's compression: `told_s` of the emulated device, or `took_s`."""
        factor = self.clocks.lanes.interference if self.computes else 1.0
        self.clocks.compress(bucket, factor * (took_s if told_s is None else told_s))
        if told_s is not None:
            self._late_s = max(0.0, self.clock.now() - self.clocks.now_s)

    def arrived(self, bucket: int, spans: list[Interval]) -> None:
        """Record the wire times of collectives that compression has waited for."""
        self._occupy_wire(bucket, spans)
        arrival = spans[-1][1]
        if arrival > self.clocks.now_s:
            self._made_wait_s, self._late_s = self._made_wait_s + self._late_s, 0.0
        self.clocks.wait_until(arrival)

    # Called when all buckets are reduced.

    def total(self, density: float, norms: Norms, achieved_density: float) -> Exchanged:
        """Sum up the exchange, which has ended."""
        clocks, workers = self.clocks, self.workers
        compute_end = self.compute_end + self._overtime_s
        begin = self.compute_end if self.first_ready is None else self.first_ready
        return Exchanged(
            compute_end=compute_end,
            backward_s=compute_end - self.backward_begin,
            late_s=self._overtime_s + self._made_wait_s + self._late_s,
            overlap_window_s=self.compute_end - begin,
            compress_s=clocks.took_s("compress"),
            comm_s=clocks.took_s("communicate"),
            exposed_s=clocks.exposed_s(),
            sent_bytes=workers.sent_bytes - self._sent_before,
            received_bytes=workers.received_bytes - self._received_before,
            dense_bytes=self.dense_bytes,
            density=density,
            achieved_density=achieved_density,
            **norms._asdict(),
        )

    def _compute_until(self, kind: str, bucket: int, time: float) -> None:
        self.clocks.compute(kind, bucket, max(0.0, time - self.clocks.device_s))

    def _occupy_wire(self, bucket: int, spans: list[Interval]) -> None:
        for start, end in spans:
            self.clocks.send(bucket, start, end)
