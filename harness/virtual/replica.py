"""One model shared by all ranks of a virtual world, which use it in turns.

Between its turns a rank keeps what belongs to it alone: buffers such as batch-norm statistics, the
cuts of the model, and its gradient in DDP's buckets. Memory: one model and optimizer, and one
gradient for each rank.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from compressors.activations.operator import Cut
from harness.engine.training.buckets import Buckets, require_all
from harness.engine.training.replica import Backward, Replica, put, unchanged
from harness.engine.training.task import Task
from harness.virtual.batched import OnePass, Share
from harness.virtual.circle import Circle
from harness.virtual.clock import VirtualClock
from harness.virtual.exchange import VirtualExchange
from harness.virtual.workers import ring_sum
from harness.workloads.buckets import BucketMb


@dataclass
class Shared:
    """State of one model that all ranks share."""

    circle: Circle
    order: list[str] = field(default_factory=list)  # in which backward has the gradients
    buckets: list[Buckets] = field(default_factory=list)  # of every rank
    at_work: int | None = None  # rank
    updates: int = 0  # of the optimizer
    update_s: float = 0.0  # real seconds of the last
    same: bool = True  # whether all ranks got the same means so far
    one_pass: OnePass | None = None  # over all ranks' batches

    def compare(self) -> None:
        """Clear `same` if the means of any rank differ in a bit from those of the first."""
        first, *others = self.buckets
        for other in others if self.same else ():
            for ours, theirs in zip(first.laid, other.laid, strict=True):
                bits = (each.buffer.view(torch.int32) for each in (ours, theirs))
                self.same = self.same and torch.equal(*bits)


@dataclass
class Borrowed(Replica):
    """The replica of `rank`, which shares `model` with all others."""

    exchange: VirtualExchange
    bucket_mb: BucketMb
    rank: int
    shared: Shared
    clock: VirtualClock
    _updates: int = field(default=0, init=False)
    _at_work: Sequence[tuple[list[Cut], list[Cut]]] = field(default=(), init=False)

    def __post_init__(self) -> None:
        named = self.model.named_parameters()
        self._parameters = {name: each for name, each in named if each.requires_grad}
        self._buffers = list(self.model.buffers())
        self._own = [buffer.clone() for buffer in self._buffers]

    def settle(self, backward: Backward, inputs: Tensor) -> None:
        """Create the gradient buckets in the order in which gradients arrive in a backward pass.

        DDP rebuilds its buckets so after its first step. The first rank does the pass for all.
        Raise ValueError for parameters without a gradient.
        """
        if not self.shared.order:
            with self.at_work(), unchanged(self.model):
                came = order_of_arrival(self._parameters, lambda: backward(self.model, inputs))
                require_all(name for name in self._parameters if name not in came)
            self.shared.order = came
        order = reversed(self.shared.order)
        parameters = {name: self._parameters[name] for name in order}
        self._buckets = Buckets(parameters, self.bucket_mb)
        self.shared.buckets.append(self._buckets)
        self.shared.one_pass = self.shared.one_pass or OnePass(self.model)

    def cut(self, cuts: list[Cut], own: list[Cut]) -> None:
        self._at_work = [(cuts, own)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Use the model exclusively. Code within must not wait."""
        self.shared.at_work = self.rank
        for cuts, own in self._at_work:
            cuts[:] = own
        put(self._buffers, self._own)
        yield
        put(self._own, self._buffers)

    def is_at_work(self) -> bool:
        return self.shared.at_work == self.rank

    def is_batched(self, task: Task) -> bool:
        """Return True for several ranks in float32, without cuts, and with emulated times."""
        one_pass, circle = self.shared.one_pass, self.shared.circle
        paced = self.clock.per_compute_s == 0 and task.precision == "float32"
        open_ = one_pass is not None and one_pass.is_open
        return open_ and paced and circle.size > 1 and not any(own for _, own in self._at_work)

    def batched(self, task: Task, inputs: Tensor, labels: Tensor) -> float | None:
        assert self.shared.one_pass is not None
        share = Share(inputs, labels, self._buckets)
        losses = partial(self.shared.one_pass.losses, task)
        return self.shared.circle.meet(self.rank, share, losses)[self.rank]  # type: ignore[no-any-return]

    def backward(self, loss: Tensor) -> None:
        loss.backward()
        self._buckets.take()

    def exchange_rest(self) -> None:
        self._buckets.exchange(self.exchange)

    def update(self, step: Callable[[], None]) -> None:
        """Run the optimizer's `step` once for all ranks, since they share a model and equal means.

        The first rank to call this does the step; the others charge its time to their clocks.
        """
        self._updates += 1
        if self.shared.updates < self._updates:
            self.shared.updates = self._updates
            self.shared.compare()
            self._buckets.give()
            began = self.clock.real_s()
            step()
            self.shared.update_s = self.clock.real_s() - began
        self.clock.charge(self.shared.update_s)

    def take_buffers_of_the_first(self) -> None:
        first = self.shared.circle.meet(self.rank, self._own, lambda owns: owns[0])
        put(self._own, first)

    def summed(self, sums: Tensor) -> Tensor:
        return self.shared.circle.meet(self.rank, sums, ring_sum)


def order_of_arrival(parameters: Mapping[str, Tensor], backward: Callable[[], None]) -> list[str]:
    """Return parameter names in the order in which `backward` completes their gradients."""
    arrived: list[str] = []
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: arrived.append(name))
        for name, parameter in parameters.items()
    ]
    try:
        backward()
    finally:
        for hook in hooks:
            hook.remove()
    return arrived
