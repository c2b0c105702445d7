"""One bucket's way through the lanes, while others are on theirs."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from harness.clock import Clock
from harness.engine.exchange.exchange_stats import ExchangeStats
from harness.engine.exchange.stream import Stream
from harness.engine.exchange.wire import CollectiveThread


@dataclass
class LaneWorkers:
    """The other workers, as the reduction of one bucket sees them.

    Its first collective is where it is left, once, and `pause` returns when it is come back to;
    from there on it waits for each.
    """

    bucket: int
    wire: CollectiveThread
    stats: ExchangeStats
    clock: Clock
    stream: Stream  # of compression
    pause: Callable[[], None]
    told_s: deque[float] | None  # compression before the first collective, ...; None: measured
    _is_left: bool = field(default=False, init=False)
    _since: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.rank, self.world_size = self.wire.workers.rank, self.wire.workers.world_size

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        return self._call(partial(self.wire.workers.all_reduce, tensor, op))

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        return self._call(partial(self.wire.workers.all_gather, *tensors, equal=equal))

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        return self._call(partial(self.wire.workers.all_to_all, *pieces, equal=equal))

    def begin(self) -> None:
        """Compression begins, or goes on."""
        self._since = self.clock.now()

    def end(self) -> None:
        """It is over: what is told of it, and no collective has come for, ends it."""
        self._compressed(None if self.told_s is None else sum(self.told_s))

    def _call(self, collective: Callable[[], Any]) -> Any:
        told_s = self.told_s
        self._compressed(None if told_s is None else told_s.popleft() if told_s else 0.0)
        sending = self.wire.post(collective, self.stats.clocks.now_s, of_bucket=True)
        if not self._is_left:
            self._is_left = True
            self.pause()
        value = sending.result()
        self.stream.adopt(value)
        self.stats.arrived(self.bucket, sending.spans)
        self.begin()
        return value

    def _compressed(self, told_s: float | None) -> None:
        self.stream.finish()
        self.stats.compressed(self.bucket, self.clock.now() - self._since, told_s)
