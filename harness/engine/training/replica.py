"""A rank's model in its world: over packets one of its own, under DDP."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from compressors.activations.operator import Cut
from harness.engine.exchange.bucket_lanes import Exchange, ExchangeError, future_of
from harness.engine.training.buckets import Buckets, ddp_sizes, require_all
from harness.engine.training.collector import Collector
from harness.engine.training.task import Task
from harness.workloads.buckets import BucketMb
from harness.workloads.fusion import Fusion

Backward = Callable[[nn.Module, Tensor], None]  # through a model, of some inputs
Hook = Callable[[object, dist.GradBucket], torch.futures.Future[Tensor]]  # of DDP


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put the buffers of `model` back in the end, and take its gradients away."""
    before = [buffer.clone() for buffer in model.buffers()]
    yield
    model.zero_grad()
    put(model.buffers(), before)


def put(buffers: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)


@dataclass
class Replica:
    """One rank's model: where its gradients go, and who else computes with it.

    Here: nobody does, and gradients stay where backward leaves them.
    """

    model: nn.Module  # that forward goes through

    def settle(self, backward: Backward, inputs: Tensor) -> None:
        """Lay out the buckets for good; nothing changes.

        `inputs` is any micro-batch. ValueError for a parameter that no gradient reaches.
        """

    def cut(self, cuts: list[Cut], own: list[Cut]) -> None:
        """Set the model's `cuts` for the time this rank is at work with it."""
        cuts[:] = own

    def at_work(self) -> AbstractContextManager[None]:
        """While the rank computes with its model, or reads and writes its state."""
        return nullcontext()

    def is_at_work(self) -> bool:
        return True

    def is_batched(self, task: Task) -> bool:
        """Tell whether `batched` is asked first: ranks share a model, and may share its passes."""
        return False

    def batched(self, task: Task, inputs: Tensor, labels: Tensor) -> float | None:
        """This rank's loss, where a pass over all ranks' batches has its gradients; None: none."""
        return None

    def alone(self) -> AbstractContextManager[None]:
        """While gradients of backward are kept: those of micro-batches but the last."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of the last micro-batch."""
        loss.backward()

    def exchange_rest(self) -> None:
        """Exchange the gradients that backward has not exchanged."""

    def update(self, step: Callable[[], None]) -> None:
        """Take the `step` of an optimizer with the means."""
        step()

    def take_buffers_of_the_first(self) -> None:
        """Such as batch-norm statistics: those of rank 0 from now on."""

    def summed(self, sums: Tensor) -> Tensor:
        """Over all ranks."""
        return sums


@dataclass
class Gathered(Replica):
    """A model whose gradients `exchange` has once backward has ended."""

    exchange: Any
    bucket_mb: BucketMb

    def __post_init__(self) -> None:
        named = self.model.named_parameters()
        self.buckets = Buckets({n: each for n, each in named if each.requires_grad}, self.bucket_mb)

    def exchange_rest(self) -> None:
        self.buckets.take()
        self.buckets.exchange(self.exchange)
        self.buckets.give()


@dataclass
class Distributed(Replica):
    """Under DDP: `exchange` has each bucket as soon as backward has made it."""

    exchange: Exchange
    bucket_mb: BucketMb
    _settling: bool = field(default=False, init=False)
    _arrived: dict[int, None] = field(default_factory=dict, init=False)  # by id

    def __post_init__(self) -> None:
        self.whole = self.model
        self._ddp = DistributedDataParallel(
            self.whole, broadcast_buffers=False, **ddp_sizes(self.bucket_mb)
        )
        self._hook: Hook = self.exchange.hook
        self._ddp.register_comm_hook(None, self._hand_over)
        self.model = self._ddp

    def settle(self, backward: Backward, inputs: Tensor) -> None:
        """Two steps without an exchange, which take the one-time costs too."""
        self._settling = True
        for some in (inputs, inputs[:2]):
            self._arrived.clear()
            with unchanged(self.whole):
                backward(self.model, some)
                self._require_all_arrived()
        self._settling = False
        self._hook = self._hook_of(list(self._arrived))

    def alone(self) -> AbstractContextManager[None]:
        self._arrived.clear()
        return self._ddp.no_sync()  # type: ignore[no-any-return]

    def backward(self, loss: Tensor) -> None:
        try:
            loss.backward()
        except RuntimeError as error:
            # Through a future an exception loses its type and traceback: show the thread's own.
            raise ExchangeError(str(self.exchange.error or error)) from self.exchange.error or error
        self._require_all_arrived()

    def take_buffers_of_the_first(self) -> None:
        for buffer in self.whole.buffers():
            dist.broadcast(buffer, src=0)

    def summed(self, sums: Tensor) -> Tensor:
        dist.all_reduce(sums)
        return sums

    def _hand_over(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """DDP's communication hook."""
        self._arrived |= dict.fromkeys(map(id, bucket.parameters()))
        if not self._settling:
            return self._hook(state, bucket)
        future = future_of(bucket.buffer())
        future.set_result(bucket.buffer())
        return future

    def _hook_of(self, arrived: list[int]) -> Hook:
        """DDP's communication hook; `arrived` has the ids of its parameters in their order."""
        if not isinstance(self.bucket_mb, Fusion):
            return self.exchange.hook
        named = {id(each): (name, each) for name, each in self.whole.named_parameters()}
        parameters = dict(named[each] for each in reversed(arrived))
        return Collector(Buckets(parameters, self.bucket_mb), self.exchange).hook

    def _require_all_arrived(self) -> None:
        """A bucket that lacks a gradient is never exchanged: the others would wait for it."""
        missing = {
            name: parameter.grad is None
            for name, parameter in self.whole.named_parameters()
            if parameter.requires_grad and id(parameter) not in self._arrived
        }
        require_all([name for name, empty in missing.items() if empty] or missing)
