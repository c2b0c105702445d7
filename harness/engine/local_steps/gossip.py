"""Gossip: workers meet in random pairs, and each pair averages its weights in each round.

Kolehmainen et al., 2025: m <- mu m + eta mean(w - a) + eta (mean(a) - a); a <- a + m; w <- a, with
means over the pair of weights w and anchors a. The two means add up to mean(w) - a, so one message
of the weights suffices, and a - mean(w) is a pseudo-gradient for the outer optimizer. Each worker
waits only for its partner, and all workers may have different weights. So compressors are not
allowed: without a common anchor, mean(a) - a needs all of the weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from controllers.base import Observation
from harness.clock import RankClock
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.exchange.stats import Exchanged, Release
from harness.engine.local_steps.reduction import OuterReduction
from harness.engine.pipeline.channel import Channel
from harness.engine.training.buckets import BucketHandle
from harness.records.run_directory import Span


def partner(rank: int, workers: int, round: int, seed: int) -> int | None:
    """Return the partner of `rank` in a round, from a random order, or None for the odd one out."""
    source = torch.Generator().manual_seed((seed << 20) + round)
    order = torch.randperm(workers, generator=source).tolist()
    place = order.index(rank) ^ 1
    return order[place] if place < workers else None


@dataclass
class Gossip:
    """An exchange of buckets with one other worker, in the thread of its rank.

    `channel` connects to a rank. After an exchange each bucket holds the pair's mean.
    """

    reduction: OuterReduction
    workers: Any  # whose number and ranks they are
    clock: RankClock
    channel: Callable[[int], Channel]
    seed: int
    shares: Mapping[str, float] = field(default_factory=dict)
    error: BaseException | None = None
    step: int = field(default=0, init=False)  # number of the current exchange, or of the next
    _release: Release | None = field(default=None, init=False)
    _begin: float = field(default=0.0, init=False)
    _backward: float = field(default=0.0, init=False)
    _held: list[Tensor] = field(default_factory=list, init=False)
    _channels: dict[int, Channel] = field(default_factory=dict, init=False)
    _took: Exchanged | None = field(default=None, init=False)
    _spans: list[tuple[str, float, float]] = field(default_factory=list, init=False)

    def begin(self, release: Release | None) -> None:
        self._begin = self._backward = self.clock.now()
        self._release = release

    def begin_backward(self) -> None:
        self._backward = self.clock.now()

    def submit(
        self, laid: BucketBuffers, last: bool = False, pattern: Tensor | None = None
    ) -> BucketHandle:
        if pattern is not None:
            laid.buffer.copy_(pattern)
        self._held.append(laid.buffer)
        if last:
            self._meet()
            self._held = []
        return BucketHandle()

    def finish(self) -> Exchanged:
        assert self._took is not None
        return self._took

    def observe(self, seen: Observation) -> None:
        self.step = seen.step + 1

    def spans(self) -> list[Span]:
        """Return the spans of the last exchange, ordered by begin."""
        rank, per_s = self.workers.rank, 1 / self.clock.dilation
        parts = self._spans
        return [Span(self.step - 1, rank, kind, -1, a * per_s, b * per_s) for kind, a, b in parts]

    def close(self) -> None:
        return None

    def _meet(self) -> None:
        now = self.clock.now()
        computed = self._release(1.0) if self._release else now
        backward = self._release(0.0) if self._release else self._backward
        self.clock.sleep_until(computed)
        began = self.clock.now()
        nbytes = self._exchange()
        ended = self.clock.now()
        self._spans = [("forward", self._begin, backward), ("backward", backward, computed),
                       ("communicate", began, ended)]  # fmt: skip
        self._took = Exchanged(
            compute_end=computed,
            backward_s=computed - backward,
            late_s=max(0.0, now - computed),
            overlap_window_s=0.0,
            compress_s=0.0,
            comm_s=ended - began,
            exposed_s=ended - began,
            sent_bytes=nbytes,
            received_bytes=nbytes,
            dense_bytes=sum(each.nbytes for each in self._held),
            density=1.0,
        )

    def _exchange(self) -> int:
        """Exchange buckets, which then hold equal means. Return bytes sent, as many as received."""
        rank, workers = self.workers.rank, self.workers.world_size
        other = partner(rank, workers, self.step, self.seed)
        if other is None:
            return 0
        if other not in self._channels:
            self._channels[other] = self.channel(other)
        channel = self._channels[other]
        mine = torch.cat(self._held)
        channel.send(mine.view(torch.uint8))
        theirs = channel.receive(mine.nbytes).view(torch.float32)
        channel.flush()
        mean = (mine + theirs).mul_(0.5)
        for buffer, part in zip(
            self._held, mean.split([b.numel() for b in self._held]), strict=True
        ):
            buffer.copy_(part)
        return mine.nbytes
