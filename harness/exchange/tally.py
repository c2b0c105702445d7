"""What an exchange took: sums over its buckets, and what they come to in the end."""

from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

from harness.clock import Clock
from harness.exchange.norms import Norms
from harness.exchange.workers import Workers


class Exchanged(NamedTuple):
    """What one exchange took, in real seconds and bytes."""

    compute_end: float  # clock time at which the last bucket was ready, or due if that was later
    backward_s: float  # from the beginning of backward to compute_end
    late_s: float  # how much the last bucket missed its due time; 0 without pacing
    hiding_s: float  # from when the first bucket could be sent to compute_end
    compress_s: float
    comm_s: float
    exposed_s: float  # part of comm_s after compute_end
    sent_bytes: int
    received_bytes: int
    dense_bytes: int
    density: float
    norms: Norms
    occupancy: float = nan  # share of entries contributed; nan: as density says


@dataclass
class Tally:
    """Sums over the buckets of the exchange in progress; clock times are in real seconds."""

    workers: Workers  # whose bytes and seconds are counted from here on
    backward_begin: float = 0.0
    buckets: int = 0  # reduced
    share: float = 0.0  # of backward, of the buckets handed over so far
    dense_bytes: int = 0
    compress_s: float = 0.0
    first_ready: float | None = None
    compute_end: float = 0.0
    late_s: float = 0.0
    _opening: int = field(default=0, init=False)  # collectives before those of buckets

    def __post_init__(self) -> None:
        self._sent_before = self.workers.sent_bytes
        self._received_before = self.workers.received_bytes
        self._seconds_before = self.workers.seconds
        self.workers.intervals.clear()

    def opened(self) -> None:
        """The density is chosen: collectives from here on are those of buckets."""
        self._opening = len(self.workers.intervals)

    def ready(self, now: float, due: float) -> None:
        """One more bucket was handed over at `now`, to be sent from `due` on."""
        self.late_s = max(0.0, now - due)
        self.compute_end = max(due, now)

    def sendable(self) -> None:
        """The buckets handed over so far may be sent."""
        if self.first_ready is None:
            self.first_ready = self.compute_end

    def reduced(self, elements: int, took_s: float, comm_s: float) -> None:
        """One more bucket of so many elements is reduced, `comm_s` of the time by collectives."""
        self.buckets += 1
        self.dense_bytes += 4 * elements
        self.compress_s += took_s - comm_s

    def durations_s(self) -> list[float]:
        """Real seconds of each collective that a bucket needed."""
        return [stop - start for start, stop in self.workers.intervals[self._opening :]]

    def total(self, clock: Clock, density: float, norms: Norms, occupancy: float) -> Exchanged:
        """What the exchange took, once every bucket is reduced."""
        workers, end = self.workers, clock.monotonic(self.compute_end)
        exposed = sum(max(0.0, stop - max(start, end)) for start, stop in workers.intervals)
        begin = self.compute_end if self.first_ready is None else self.first_ready
        return Exchanged(
            compute_end=self.compute_end,
            backward_s=self.compute_end - self.backward_begin,
            late_s=self.late_s,
            hiding_s=self.compute_end - begin,
            compress_s=self.compress_s,
            comm_s=workers.seconds - self._seconds_before,
            exposed_s=exposed,
            sent_bytes=workers.sent_bytes - self._sent_before,
            received_bytes=workers.received_bytes - self._received_before,
            dense_bytes=self.dense_bytes,
            density=density,
            norms=norms,
            occupancy=occupancy,
        )
