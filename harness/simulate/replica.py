"""Every worker's gradients from one model: each computes in turn, as the rank that it stands for.

Between their turns a worker keeps what a rank has alone: batches, buffers of the model such as
batch-norm statistics, what a recurrent model carries on, the state of the random numbers, and its
gradient in DDP's buckets.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from harness.data.base import Batch
from harness.simulate.side import Computed, Laid
from harness.simulate.sums import ring_sum
from harness.training.gradients import bucket_names
from harness.training.task import Memory, Task


@dataclass
class Own:
    """What one worker has alone."""

    batches: Iterator[Batch]
    test_set: Iterable[Batch]  # its share, again at each iteration
    random: Tensor
    random_cuda: Tensor | None
    buffers: list[Tensor]
    memory: Memory
    buckets: list[Laid] = field(default_factory=list)


@dataclass
class Replica:
    """Gradients of `model` on the batches of every worker; SGD with momentum on their mean.

    Memory: one model and optimizer, and a gradient for each worker, who have to meet.
    """

    model: nn.Module
    workers: list[Own]
    optimizer: torch.optim.Optimizer
    learning_rate: Callable[[int], float]
    shares: dict[str, float]  # of backward, by parameter
    samples: int
    device: torch.device
    bucket_mb: float | None  # None: DDP's own sizes
    task: Task
    accumulate: int = 1
    clip_norm: float | None = None
    same: bool = field(default=True, init=False)  # whether all workers got the same means so far

    def __post_init__(self) -> None:
        self._parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self._buffers = list(self.model.buffers())

    def settle(self, inputs: Tensor) -> None:
        """Lay out the buckets as DDP does after its first step, which this takes; nothing changes.

        ValueError for a model with a parameter that no gradient reaches.
        """
        parameters = self._parameters
        before = [buffer.clone() for buffer in self._buffers]
        arrived = _order_of_arrival(
            parameters, lambda: self.task.scores(self.model, inputs).sum().backward()
        )
        self._clear()
        for buffer, value in zip(self._buffers, before, strict=True):
            buffer.copy_(value)
        if missing := [name for name in parameters if name not in arrived]:
            raise ValueError(
                f"model: no gradient reached {', '.join(missing)}; every parameter must take part "
                "in every step: use it, or set requires_grad = False"
            )
        sizes = {name: parameters[name].numel() for name in reversed(arrived)}
        layout = bucket_names(sizes, self.bucket_mb)
        for own in self.workers:
            own.buckets = lay(layout, parameters, self.shares)

    def compute(self, rank: int) -> Computed:
        """Leave this worker's gradient in its buckets; seconds are real."""
        own = self.workers[rank]
        self._enter(own)
        began = self._now()
        inputs, labels = next(own.batches)
        chunks = inputs.chunk(self.accumulate), labels.chunk(self.accumulate)
        *first, last = zip(range(self.accumulate), *chunks, strict=True)
        own.memory.begin()
        total = 0.0
        for part in first:
            loss = self._loss(own.memory, *part)
            loss.backward()
            total += loss.item()
        loss = self._loss(own.memory, *last)
        forward_end = self._now()
        loss.backward()
        total += loss.item()
        backward_end = self._now()
        self._leave(own)
        return Computed(total, forward_end - began, backward_end - forward_end)

    def buckets(self, rank: int) -> list[Laid]:
        return self.workers[rank].buckets

    def update(self, step: int) -> float:
        """Optimizer step with the mean gradients; returns the real seconds it took."""
        self._compare()
        began = self._now()
        for bucket in self.workers[0].buckets:
            for name, mean in zip(bucket.names, bucket.gradients, strict=True):
                self._parameters[name].grad = mean
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters.values(), self.clip_norm)
        self.optimizer.step()
        self._clear()
        return self._now() - began

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Metrics on the test set; every worker has the first one's buffers from then on."""
        self._hand_out_buffers()
        self.model.eval()
        tested = [self.task.tested(self.model, own.test_set) for own in self.workers]
        self.model.train()
        return self.task.metrics(ring_sum(tested))

    def shared(self) -> dict[str, Any]:
        """What a checkpoint needs of any one worker."""
        self._enter(self.workers[0])
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def own(self, rank: int) -> dict[str, Any]:
        """What it needs of every worker."""
        own = self.workers[rank]
        names = [name for name, _ in self.model.named_buffers()]
        buffers = dict(zip(names, own.buffers, strict=True))
        return {
            "buffers": buffers,
            "carried": own.memory.states,
            "random": own.random,
            "random_cuda": own.random_cuda,
        }

    def restore(self, rank: int, own: dict[str, Any]) -> None:
        """Put a worker where its `own` was taken."""
        worker = self.workers[rank]
        worker.random, worker.random_cuda = own["random"], own["random_cuda"]
        worker.memory.states = own["carried"]
        worker.buffers = [own["buffers"][name] for name, _ in self.model.named_buffers()]

    def _loss(self, memory: Memory, part: int, inputs: Tensor, labels: Tensor) -> Tensor:
        """This micro-batch's part of the mean over the batch."""
        scores = self.task.scores(self.model, inputs, memory, part)
        return self.task.loss(scores, labels) / self.accumulate

    def _enter(self, own: Own) -> None:
        torch.set_rng_state(own.random)
        if own.random_cuda is not None:
            torch.cuda.set_rng_state(own.random_cuda, self.device)
        for buffer, value in zip(self._buffers, own.buffers, strict=True):
            buffer.copy_(value)

    def _leave(self, own: Own) -> None:
        own.random = torch.get_rng_state()
        if own.random_cuda is not None:
            own.random_cuda = torch.cuda.get_rng_state(self.device)
        for buffer, value in zip(self._buffers, own.buffers, strict=True):
            value.copy_(buffer)
        for bucket in own.buckets:
            found = [self._parameters[name].grad for name in bucket.names]
            torch.cat([grad.reshape(-1) for grad in found if grad is not None], out=bucket.buffer)
        self._clear()

    def _clear(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None

    def _hand_out_buffers(self) -> None:
        first, *others = self.workers
        self._enter(first)
        for own in others:
            for buffer, value in zip(own.buffers, first.buffers, strict=True):
                buffer.copy_(value)

    def _compare(self) -> None:
        """Every reduction promises the same bits to all."""
        first, *others = (own.buckets for own in self.workers)
        for buckets in others if self.same else ():
            for ours, theirs in zip(first, buckets, strict=True):
                equal = torch.equal(ours.buffer.view(torch.int32), theirs.buffer.view(torch.int32))
                self.same = self.same and equal

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def lay(
    layout: list[tuple[str, ...]], parameters: Mapping[str, Tensor], shares: dict[str, float]
) -> list[Laid]:
    """Empty buckets of these parameters, by name."""
    buckets, share = [], 0.0
    for names in layout:
        members = [parameters[name].detach() for name in names]
        share += sum(shares[name] for name in names)
        buffer = members[0].new_zeros(sum(member.numel() for member in members))
        parts = buffer.split([member.numel() for member in members])
        views = [part.view(member.shape) for part, member in zip(parts, members, strict=True)]
        buckets.append(Laid(names, buffer, views, members, share))
    return buckets


def _order_of_arrival(parameters: Mapping[str, Tensor], backward: Callable[[], None]) -> list[str]:
    """Names in the order in which `backward` completes their gradients."""
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
