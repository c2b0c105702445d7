"""Sources of a rank's gradients: a model on real data, or noise of the same sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from harness.clock import RankClock
from harness.engine.training.buckets import Buckets
from harness.engine.training.course import Course
from harness.engine.training.random_numbers import random_numbers, set_random_numbers
from harness.engine.training.replica import Replica
from harness.engine.training.task import RecurrentState, Task
from harness.workloads.buckets import BucketMb
from harness.workloads.data.base import Batch
from harness.workloads.models.base import State


class Gradients(Protocol):
    """Source of a rank's gradients. The defaults suit a source without weights."""

    course: Course
    exchange: Any

    def compute(self, step: int) -> float:
        """Compute and exchange the gradients of `step`. Wait for the means and return the loss."""
        ...

    def update(self, step: int) -> None:
        """Update the weights with the mean gradients."""
        return None

    def evaluate(self) -> dict[str, float]:
        """Return the metrics of the current weights, equal on all ranks."""
        return {}

    def close(self) -> None:
        """End the threads that compute gradients."""
        return None


@dataclass
class Trained(Gradients):
    """Gradients of `model` on the batches of `course`, and the optimizer that applies their mean.

    Batch-norm statistics stay local to a rank, as without DDP's buffer broadcast. Those of rank 0
    are evaluated and saved. A batch is cut into `accumulate` equal micro-batches. Their gradients
    are averaged locally and exchanged with the last one's backward. Batch-norm sees one micro-batch
    at a time. With `task.precision` bf16, forward passes run under autocast; weights, gradients and
    loss stay float32. `clip_norm` bounds the norm of the mean gradient over all parameters.
    """

    # Types of the values in `own` that are empty before the first step.
    annotations: ClassVar[dict[str, Any]] = {
        "carried": dict[int, State],
        "random_cuda": Tensor | None,
    }
    model: nn.Module
    replica: Replica  # of `model`
    course: Course
    optimizer: torch.optim.Optimizer
    exchange: Any
    clock: RankClock
    task: Task
    accumulate: int = 1
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        first = self.course.first
        self.batches = self.course.batches(first)
        self.memory = RecurrentState(self.course.period, first)

    def settle(self, inputs: Tensor) -> None:
        """Run a step's one-time setup on any micro-batch `inputs`, without a lasting change."""

        def backward(model: nn.Module, some: Tensor) -> None:
            self.task.scores(model, some).sum().backward()

        self.replica.settle(backward, inputs)

    def compute(self, step: int) -> float:
        self.memory.begin()
        batch, loss = None, None
        if self.accumulate == 1 and self.replica.is_batched(self.task):
            batch = next(self.batches)
            loss = self.replica.batched(self.task, *batch)
        if loss is None:
            loss = self._computed(batch)
        self.replica.exchange_rest()
        return loss

    def _computed(self, batch: Batch | None) -> float:
        """Compute the gradients of `batch`, or of the next batch if None. Return the loss."""
        total = 0.0
        with self.clock.computing(), self.replica.at_work():
            inputs, labels = batch or next(self.batches)
            chunks = inputs.chunk(self.accumulate), labels.chunk(self.accumulate)
            *first, last = zip(range(self.accumulate), *chunks, strict=True)
            with self.replica.alone():
                for part in first:
                    loss = self._loss(*part)
                    loss.backward()
                    total += loss.item()
            loss = self._loss(*last)
            self.exchange.begin_backward()
            self.replica.backward(loss)
        return total + loss.item()

    def _loss(self, part: int, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return micro-batch `part`'s share of the mean loss over the batch."""
        scores = self.task.scores(self.replica.model, inputs, self.memory, part)
        return self.task.loss(scores, labels) / self.accumulate

    def update(self, step: int) -> None:
        self.replica.update(partial(self._step, step))

    def _step(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.course.learning_rate(step)
        if self.clip_norm is not None:
            self.clip(self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def clip(self, most: float) -> None:
        """Scale the mean gradient of the whole model to a norm of at most `most`."""
        nn.utils.clip_grad_norm_(self.model.parameters(), most)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        self.replica.take_buffers_of_the_first()
        with self.replica.at_work():
            self.model.eval()
            sums = self.tested()
            self.model.train()
        return self.task.metrics(self.replica.summed(sums))

    def tested(self) -> Tensor:
        """Return the sums over this rank's share of the test set, as `Task.metrics` takes them."""
        return self.task.tested(self.model, self.course.test_set())

    def common(self) -> list[Tensor]:
        """Return the weights that are bitwise equal on all ranks."""
        return list(self.model.parameters())

    def shared(self) -> dict[str, Any]:
        """Return the checkpoint state shared by all ranks, valid until another rank computes."""
        with self.replica.at_work():
            return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def own(self) -> dict[str, Any]:
        """Return this rank's checkpoint state: buffers, carried states and random numbers."""
        with self.replica.at_work():
            return {
                "buffers": dict(self.model.named_buffers()),
                "carried": self.memory.states,
                **random_numbers(self.task.device),
            }

    def load_state_dict(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        """Restore the state of `shared` and this rank's `own`, except the position in the data."""
        with self.replica.at_work():
            names = self.model.state_dict()
            self.model.load_state_dict({name: shared["model"][name] for name in names})
            for name, buffer in self.model.named_buffers():
                buffer.copy_(own["buffers"][name])
        self.optimizer.load_state_dict((shared | own)["optimizer"])
        self.memory.states = own["carried"]
        set_random_numbers(own, self.task.device)
        if own["seen"]:
            self.exchange.observe(own["seen"])


@dataclass
class Replayed(Gradients):
    """Replay without computation: exchanges seeded noise of the model's true bucket sizes.

    `parameters` are on the meta device, in registration order. The loss is NaN, and there is
    nothing to evaluate or save.
    """

    parameters: Mapping[str, Tensor]
    course: Course
    exchange: Any
    bucket_mb: BucketMb
    seed: int

    def __post_init__(self) -> None:
        noise = torch.Generator().manual_seed(self.seed)
        values = not getattr(self.exchange, "by_shape", False)
        self._buckets = Buckets(self.parameters, self.bucket_mb, values)
        sizes = [laid.buffer.numel() for laid in self._buckets.laid if values]
        self._patterns = [torch.randn(size, generator=noise) for size in sizes]

    def compute(self, step: int) -> float:
        self._buckets.exchange(self.exchange, self._patterns)
        return float("nan")
