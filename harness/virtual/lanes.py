"""Schedule of a simulated step: the times of each worker's device, compression lane and network.

No value within an exchange depends on time. So all workers first record what they computed,
compressed and called, and one of them then computes all times. The order is that of real runs
(`in_turn`). A device runs forward, backward, compression and decompression one after another.
Collectives follow each other on the network, and each begins when the last worker calls it.
Backward does not wait for a separate compression lane.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.config.lanes import Lanes
from harness.engine.exchange.bucket_lanes import in_turn
from harness.engine.exchange.stats import Clocks
from harness.virtual.costs import Costs

CollectiveCall = tuple[Any, ...]  # name of a method of `Costs`, and its arguments


class LaneOp(NamedTuple):
    """Compression that takes `compress_s` seconds, or a call of one or two collectives in a row."""

    compress_s: float
    call: tuple[CollectiveCall, ...] = ()


class Work(NamedTuple):
    """Work of one worker in a step that begins at `begin_s`. All workers make the same calls."""

    begin_s: float
    forward_s: float
    backward_s: list[float]  # of each bucket's part of backward
    opening: list[LaneOp]
    buckets: list[list[LaneOp]]


@dataclass
class Layout:
    """Schedule of one step for all workers, or for one worker that represents all."""

    works: Sequence[Work]
    costs: Costs
    lanes: Lanes
    after_backward: bool  # no bucket is started before the last is ready

    def workers(self) -> list[Clocks]:
        """Compute the schedule. Return the lanes of every worker, ordered by rank."""
        self._workers = [Clocks(work.begin_s, self.lanes) for work in self.works]
        self._count = len(self.works[0].buckets)
        self._left = [[iter(ops) for ops in work.buckets] for work in self.works]
        self._arrived_s: dict[int, list[float]] = {}  # by bucket: last call's end per worker
        for worker, work in zip(self._workers, self.works, strict=True):
            worker.compute("forward", -1, work.forward_s)
        for op in self.works[0].opening:  # no bucket is compressed before the density is known
            self._send(-1, [worker.wire_s for worker in self._workers], op.call)
        self._opened_s = [worker.wire_s for worker in self._workers]
        for starts, bucket in in_turn(range(self._count), self.lanes.ahead):
            (self._start if starts else self._go_on)(bucket)
        return self._workers

    def _start(self, bucket: int) -> None:
        self._computes = bucket < self._count - 1 and not self.after_backward
        each = zip(self._workers, self.works, self._opened_s, strict=True)
        for worker, work, opened_s in each:
            if not self.after_backward:
                worker.compute("backward", bucket, work.backward_s[bucket])
            elif bucket == 0:
                for number, part_s in enumerate(work.backward_s):
                    worker.compute("backward", number, part_s)
            worker.wait_until(max(worker.device_s, opened_s))
        self._up_to_call(bucket)

    def _go_on(self, bucket: int) -> None:
        while (arrived_s := self._arrived_s.pop(bucket, None)) is not None:
            for worker, time_s in zip(self._workers, arrived_s, strict=True):
                worker.wait_until(time_s)
            self._up_to_call(bucket)

    def _up_to_call(self, bucket: int) -> None:
        """Run a bucket's compression up to and including its next collective, or to its end."""
        factor = self.lanes.interference if self._computes else 1.0
        call: tuple[CollectiveCall, ...] = ()
        for worker, left in zip(self._workers, self._left, strict=True):
            for op in left[bucket]:
                worker.compress(bucket, factor * op.compress_s)
                if op.call:
                    call = op.call
                    break
        if call:
            self._send(bucket, [worker.now_s for worker in self._workers], call)
            self._arrived_s[bucket] = [worker.wire_s for worker in self._workers]

    def _send(self, bucket: int, called_s: list[float], call: tuple[CollectiveCall, ...]) -> None:
        workers, many = self._workers, len(self._workers) > 1
        for collective, *asked in call:
            pairs = zip(workers, called_s, strict=True)
            begins_s = [max(worker.wire_s, time_s) for worker, time_s in pairs]
            start_s = max(begins_s)
            end_s = getattr(self.costs, collective)(start_s, *asked)
            early_s = self.costs.early_s(start_s, end_s, collective, *asked) if many else (0.0,)
            for worker, begin_s, early in zip(workers, begins_s, early_s, strict=True):
                worker.send(bucket, [(begin_s, end_s - float(early))])
