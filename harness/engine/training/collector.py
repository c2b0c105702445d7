"""Collection of DDP's single tensors into the buckets of an exchange."""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.futures import Future

from harness.engine.exchange.bucket_lanes import Exchange, future_of
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.training.buckets import Buckets


class PendingGradient(NamedTuple):
    """A gradient whose bucket is not full yet."""

    buffer: Tensor  # [n], DDP's own, in which it expects the mean
    mean: Tensor  # [n], where it will be
    future: Future[Tensor]


@dataclass
class Collector:
    """Fills `buckets` with the tensors that DDP hands over, in order, and submits each full one."""

    buckets: Buckets
    exchange: Exchange
    _left: deque[BucketBuffers] = field(default_factory=deque, init=False)  # of this exchange
    _held: list[PendingGradient] = field(default_factory=list, init=False)

    def hook(self, state: object, bucket: torch.distributed.GradBucket) -> Future[Tensor]:
        """Copy DDP's tensor into its bucket (communication hook). Return a future of its mean."""
        if not self._left:
            self._left.extend(self.buckets.at(self.exchange.step))
        (parameter,), laid = bucket.parameters(), self._left[0]
        assert self.exchange.names[id(parameter)] == laid.names[len(self._held)]
        mean = laid.gradients[len(self._held)].view(-1)
        mean.copy_(bucket.buffer())
        self._held.append(PendingGradient(bucket.buffer(), mean, future_of(mean)))
        future = self._held[-1].future
        if len(self._held) == len(laid.names):
            self._submit()
        return future

    def _submit(self) -> None:
        laid, held = self._left.popleft(), self._held
        self._held = []
        sent = self.exchange.submit(laid, last=not self._left)
        sent.add_done_callback(partial(_settle, held))


def _settle(held: list[PendingGradient], sent: Future[Tensor]) -> None:
    try:
        sent.value()
    except Exception as error:  # any kind, because DDP waits for every future
        for each in held:
            each.future.set_exception(error)  # type: ignore[arg-type]
        return
    for each in held:
        each.future.set_result(each.buffer.copy_(each.mean))
