"""The gradient exchange: DDP's buckets go to the lanes of their rank, device and network.

`begin` lets a density be chosen while forward runs. DDP calls `hook` with each bucket as backward
produces it and gets a future. One thread goes through the buckets in the order of `in_turn`: it
starts the reduction of one, plain blocking code, which goes as far as its first collective, starts
others, and comes back to it. The network thread performs the collectives meanwhile, and backward
goes on, so every algorithm overlaps, and the order on the wire is the same on all ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.futures import Future

from controllers.base import Observation
from harness.clock import Clock
from harness.config.lanes import Lanes
from harness.engine.exchange.clocks import Clocks
from harness.engine.exchange.exchange_stats import Exchanged, ExchangeStats, Release
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.engine.exchange.runner import BucketJob, Charge, ExchangeStart, Runner
from harness.engine.exchange.workers import Workers

JOIN_S = 5.0  # the threads end between two buckets; longer means a collective hangs


class ExchangeError(RuntimeError):
    """The exchange failed; its cause is the error of one of its threads."""


@dataclass
class Exchange:
    """Owns the lanes of one rank, on which `reduction` is run on every bucket.

    `shares` gives each parameter's share of backward; the release given to `begin` maps the share
    of backward done so far to the clock time at which an emulated device that did nothing else
    would have done it (None: there is none). `lanes` says what else it does, `charge` how long it
    compresses (None: as long as it takes here). With `after_backward` no bucket is started before
    the last is ready. `step` is the exchange that is next, or goes on.
    """

    reduction: Reduction
    workers: Workers  # those of the reduction, whose bytes and times are counted
    clock: Clock
    names: dict[int, str]  # id of parameter -> name
    shares: Mapping[str, float] = field(default_factory=dict)
    after_backward: bool = False
    lanes: Lanes = Lanes(on_device=False)
    charge: Charge | None = None

    def __post_init__(self) -> None:
        self._held: list[BucketJob] = []  # that backward's end will send
        self._stats = self._fresh(None)
        self._seen: Observation | None = None
        self._durations_s: list[float] | None = None
        self.step = 0
        self._runner = Runner(self.reduction, self.workers, self.clock, self.charge)

    @property
    def error(self) -> BaseException | None:
        """First error on the lanes; None if there was none."""
        return self._runner.error

    def begin(self, release: Release | None) -> None:
        """A new exchange; call before forward, which hides how long its start takes."""
        self._raise_if_failed()
        self._stats = self._fresh(release)
        given = self.step, self._seen, self._durations_s, self._stats
        self._runner.put(ExchangeStart(*given, self.lanes.ahead))

    def _fresh(self, release: Release | None) -> ExchangeStats:
        now = self.clock.now()
        backward_begin = release(0.0) if release else now
        clocks = Clocks(min(now, backward_begin), self.lanes)
        return ExchangeStats(self.workers, self.clock, clocks, release, backward_begin)

    def begin_backward(self) -> None:
        """Forward is over; without this call, and a release, it is thought to take no time."""
        if self._stats.release is None:
            self._stats.backward_begin = self.clock.now()

    def hook(self, state: object, bucket: torch.distributed.GradBucket) -> Future[Tensor]:
        """DDP communication hook."""
        names = tuple(self.names[id(parameter)] for parameter in bucket.parameters())
        parameters = [parameter.detach() for parameter in bucket.parameters()]
        laid = BucketBuffers(bucket.buffer(), names, bucket.gradients(), parameters)
        return self.submit(laid, bucket.is_last())

    def submit(
        self, laid: BucketBuffers, last: bool = False, pattern: Tensor | None = None
    ) -> Future:
        """Queue one bucket; the future's value is its buffer, holding the mean gradient.

        `last`: it is that of backward's end, before which not all others are done. `pattern`, [n]:
        the gradient, where the buffer does not hold it yet.
        """
        buffer = laid.buffer
        if pattern is not None:
            buffer.copy_(pattern)
        stats, now, number = self._stats, self.clock.now(), self._stats.buckets
        share = sum(self.shares.get(name, 0.0) for name in laid.names)
        part_s = stats.ready(now, share, buffer.numel())
        future = future_of(buffer)
        event = torch.cuda.current_stream().record_event() if buffer.is_cuda else None
        self._held.append(BucketJob(number, laid, now, part_s, last, future, event))
        if last or not self.after_backward:
            stats.sendable()
            self.workers.processor_waits.handed_over()
            self._runner.put(self._held)
            self._held = []
        return future

    def finish(self) -> Exchanged:
        """Totals of this exchange; call when all its futures are done (backward has returned)."""
        self._raise_if_failed()
        stats, reduction = self._stats, self.reduction
        self._durations_s = [took / self.clock.dilation for took in stats.clocks.durations_s()]
        return stats.total(reduction.density, reduction.norms(), reduction.achieved_density())

    def observe(self, seen: Observation) -> None:
        """Keep the observation that the controller sees when it chooses the next density."""
        self._seen = seen
        self.step = seen.step + 1

    def agree(self, value: float, how: str) -> float:
        """One value for all workers, who ask between two exchanges: the `min` or `mean`."""
        self._raise_if_failed()
        return self._runner.agree(value, how)

    def close(self) -> None:
        """End the threads; raises ExchangeError when one hangs in a collective."""
        if not self._runner.close(JOIN_S):
            raise ExchangeError(f"the communication thread did not end within {JOIN_S} s")

    def _raise_if_failed(self) -> None:
        if self.error is not None:
            raise ExchangeError(str(self.error)) from self.error


def future_of(tensor: Tensor) -> Future:
    """Future whose value will be on the device of `tensor`."""
    return Future(devices=[tensor.device]) if tensor.is_cuda else Future()
