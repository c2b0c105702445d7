"""One worker's side of the exchanges of a run, on a time line of its own.

What harness.exchange.thread does under real packets with a thread and a clock: buckets are taken
in order as they become ready, by one thread that compresses and communicates while backward goes
on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor

from controllers.base import Observation
from harness.exchange.reduction import Reduction
from harness.exchange.thread import Exchanged
from harness.records import Span
from harness.simulate.compression import Given
from harness.simulate.repeats import Done, Repeats
from harness.simulate.workers import SimulatedWorkers


class Laid(NamedTuple):
    """One bucket of one worker."""

    names: tuple[str, ...]
    buffer: Tensor  # [n]; the gradient, then the mean
    gradients: list[Tensor]  # views of buffer by parameter, shaped
    parameters: Sequence[Tensor]
    share: float  # of backward, of all buckets up to this one
    pattern: Tensor | None = None  # [n]; of replay: the gradient, wherever it is looked at


class Computed(NamedTuple):
    """What one worker's forward and backward took, in emulated seconds."""

    loss: float
    forward_s: float
    backward_s: float


@dataclass
class Side:
    """`exchange` runs on the worker's thread, the rest between exchanges."""

    reduction: Reduction
    workers: SimulatedWorkers
    compression: Given | None  # None: measured
    after_backward: bool  # no bucket is sent before the last is ready
    repeats: Repeats = field(default_factory=lambda: Repeats(0))  # of one who stands for all
    end_s: float = field(default=0.0, init=False)  # of the last step
    _spans: list[Span] = field(default_factory=list, init=False)
    _seen: Observation | None = field(default=None, init=False)
    _durations_s: list[float] | None = field(default=None, init=False)

    def exchange(self, step: int, computed: Computed, buckets: list[Laid]) -> Exchanged:
        """One step from `end_s` on: its `end_s` is when both computation and exchange are over."""
        workers, begin_s = self.workers, self.end_s
        sent, received = workers.sent_bytes, workers.received_bytes
        workers.intervals.clear()
        workers.now_s = max(workers.now_s, begin_s)
        workers.open(step)
        self.reduction.open(self._seen, self._durations_s)
        self.repeats.begin(self.reduction.density)
        opened, workers.compress_s = len(workers.intervals), 0.0
        workers.compressing.clear()
        self._spans = [*self._of(step, "communicate", -1, workers.intervals)]
        backward_s = begin_s + computed.forward_s
        ready_s = [backward_s + bucket.share * computed.backward_s for bucket in buckets]
        compute_end = ready_s[-1]
        due_s = [compute_end] * len(buckets) if self.after_backward else ready_s
        for index, (bucket, due) in enumerate(zip(buckets, due_s, strict=True)):
            self._reduce(step, index, bucket, due)
        self.end_s = max(compute_end, workers.now_s)
        self._spans += self._computing(step, begin_s, [backward_s, *ready_s])
        self._durations_s = [stop - start for start, stop in workers.intervals[opened:]]
        return Exchanged(
            compute_end=compute_end,
            backward_s=computed.backward_s,
            late_s=0.0,
            hiding_s=compute_end - due_s[0],
            compress_s=workers.compress_s,
            comm_s=sum(stop - start for start, stop in workers.intervals),
            exposed_s=sum(
                max(0.0, stop - max(start, compute_end)) for start, stop in workers.intervals
            ),
            sent_bytes=workers.sent_bytes - sent,
            received_bytes=workers.received_bytes - received,
            dense_bytes=sum(4 * bucket.buffer.numel() for bucket in buckets),
            density=self.reduction.density,
            norms=self.reduction.norms(),
            occupancy=self.reduction.occupancy(),
        )

    def spans(self) -> list[Span]:
        """What was done in the last exchange, by when it began."""
        return sorted(self._spans, key=lambda span: (span.start_s, span.bucket))

    def observe(self, seen: Observation) -> None:
        """What the controller will see when it chooses the next exchange's density."""
        self._seen = seen

    def _reduce(self, step: int, index: int, bucket: Laid, due_s: float) -> None:
        workers = self.workers
        sent, compressed = len(workers.intervals), len(workers.compressing)
        workers.acts.clear()
        if (done := self.repeats.of(index)) is not None:
            self._repeat(done, due_s)
        else:
            self._exchange(step, index, bucket, due_s)
        self._spans += self._of(step, "compress", index, workers.compressing[compressed:])
        self._spans += self._of(step, "communicate", index, workers.intervals[sent:])

    def _exchange(self, step: int, index: int, bucket: Laid, due_s: float) -> None:
        workers = self.workers
        sent, received = workers.sent_bytes, workers.received_bytes
        if bucket.pattern is not None:
            bucket.buffer.copy_(bucket.pattern)
        workers.begin(due_s)
        if self.compression is not None:
            workers.charge(self.compression.seconds(bucket.buffer.numel()))
        self.reduction.reduce(
            step, index, bucket.names, bucket.gradients, bucket.buffer, bucket.parameters
        )
        workers.pause()
        went = workers.sent_bytes - sent, workers.received_bytes - received
        self.repeats.add(Done(workers.acts.copy(), *went))

    def _repeat(self, done: Done, due_s: float) -> None:
        self.workers.again(due_s, done.acts)
        self.workers.sent_bytes += done.sent_bytes
        self.workers.received_bytes += done.received_bytes

    def _computing(self, step: int, begin_s: float, ends_s: list[float]) -> Iterator[Span]:
        """Forward, which ends first, and backward up to each bucket."""
        yield from self._of(step, "forward", -1, [(begin_s, ends_s[0])])
        for index, part in enumerate(pairwise(ends_s)):
            yield from self._of(step, "backward", index, [part])

    def _of(
        self, step: int, kind: str, bucket: int, parts: Sequence[tuple[float, float]]
    ) -> Iterator[Span]:
        return (Span(step, self.workers.rank, kind, bucket, *part) for part in parts)
