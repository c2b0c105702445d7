"""Copy of the model at one rank, and how its gradients reach the exchange."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from compressors.activations.operator import Cut
from harness.engine.exchange.bucket_lanes import Exchange, ExchangeError, future_of
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.training.buckets import Buckets, ddp_sizes, require_all
from harness.engine.training.task import Task
from harness.workloads.buckets import BucketMb
from harness.workloads.fusion import Fusion

Backward = Callable[[nn.Module, Tensor], None]  # runs forward and backward on some inputs
Hook = Callable[[object, dist.GradBucket], torch.futures.Future[Tensor]]  # of DDP


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Context manager that restores the buffers of `model` and clears its gradients at the end."""
    before = [buffer.clone() for buffer in model.buffers()]
    yield
    model.zero_grad()
    put(model.buffers(), before)


def put(buffers: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)


@dataclass
class Replica:
    """One rank's model, the path of its gradients, and the ranks that share it.

    This base class shares the model with no rank and leaves gradients in the parameters.
    """

    model: nn.Module  # the module to call in forward

    def settle(self, backward: Backward, inputs: Tensor) -> None:
        """Fix the buckets' layout by a micro-batch; ValueError if a parameter gets no gradient."""

    def cut(self, cuts: list[Cut], own: list[Cut]) -> None:
        """Replace the model's `cuts` by this rank's `own` while it computes."""
        cuts[:] = own

    def at_work(self) -> AbstractContextManager[None]:
        """Context manager in which the rank computes, or reads and writes the model's state."""
        return nullcontext()

    def is_at_work(self) -> bool:
        return True

    def is_batched(self, task: Task) -> bool:
        """Return True if `batched` must be tried first. Ranks that share a model may batch."""
        return False

    def batched(self, task: Task, inputs: Tensor, labels: Tensor) -> float | None:
        """Return this rank's loss from one pass over all ranks' batches, or None if impossible."""
        return None

    def alone(self) -> AbstractContextManager[None]:
        """Context manager for micro-batches before the last: accumulate without exchange."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of the last micro-batch."""
        loss.backward()

    def exchange_rest(self) -> None:
        """Exchange the gradients that backward did not exchange."""

    def update(self, step: Callable[[], None]) -> None:
        """Run `step`, an optimizer step with the mean gradients."""
        step()

    def take_buffers_of_the_first(self) -> None:
        """Copy rank 0's buffers to this rank; do nothing here, as all share one model."""

    def summed(self, sums: Tensor) -> Tensor:
        """Return the sum of `sums` over all ranks."""
        return sums


@dataclass
class Gathered(Replica):
    """A model whose gradients are exchanged after backward has ended."""

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
    """A model under DDP: each bucket is exchanged as soon as backward has completed it."""

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
        """Run two backward passes without an exchange, so that DDP rebuilds its buckets.

        They also pay one-time costs. Gradients and buffers are as before. Then create the
        exchange's hook. Raise ValueError if a parameter gets no gradient.
        """
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
            # A future drops an exception's type and traceback, so raise the thread's own error.
            raise ExchangeError(str(self.exchange.error or error)) from self.exchange.error or error
        self._require_all_arrived()

    def take_buffers_of_the_first(self) -> None:
        for buffer in self.whole.buffers():
            dist.broadcast(buffer, src=0)

    def summed(self, sums: Tensor) -> Tensor:
        dist.all_reduce(sums)
        return sums

    def _hand_over(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Record the bucket's parameters and pass it on (DDP's communication hook)."""
        self._arrived |= dict.fromkeys(map(id, bucket.parameters()))
        if not self._settling:
            return self._hook(state, bucket)
        future = future_of(bucket.buffer())
        future.set_result(bucket.buffer())
        return future

    def _hook_of(self, arrived: list[int]) -> Hook:
        """Return DDP's communication hook. `arrived` has its parameters' ids, in its order."""
        if not isinstance(self.bucket_mb, Fusion):
            return self.exchange.hook
        named = {id(each): (name, each) for name, each in self.whole.named_parameters()}
        parameters = dict(named[each] for each in reversed(arrived))
        return Collector(Buckets(parameters, self.bucket_mb), self.exchange).hook

    def _require_all_arrived(self) -> None:
        """Raise ValueError if a gradient is missing: its bucket would never be exchanged."""
        missing = {
            name: parameter.grad is None
            for name, parameter in self.whole.named_parameters()
            if parameter.requires_grad and id(parameter) not in self._arrived
        }
        require_all([name for name, empty in missing.items() if empty] or missing)


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
