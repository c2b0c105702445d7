"""One thread of a trainer, and its model: it pulls, computes, compresses and pushes."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import nn

from harness.clock import Clock
from harness.data.base import Batch
from harness.parameter_server.client import Client
from harness.parameter_server.flat import flattened
from harness.parameter_server.gradient import Gradient
from harness.parameter_server.messages import Ack, Push
from harness.records import Step
from harness.training.pace import Pace
from harness.training.task import Task

OVERRUN_SHARE = 0.01  # of its step: computation later than that was not paced


class Stepped(NamedTuple):
    """What a step was, and what became of it."""

    row: Step
    ack: Ack
    overran: bool
    drained: list[str]  # parameters whose residual was drained


@dataclass
class Replica:
    """A model whose weights are pulled into `weights`, [n]; its gradient is in `grad`, [n]."""

    rank: int
    model: nn.Module
    task: Task
    gradient: Gradient
    pull_every: int
    pace: Pace
    clock: Clock
    accumulate: int = 1
    _version: int = field(default=0, init=False)  # of what was pulled
    _since_pull: int = field(default=0, init=False)  # steps

    def __post_init__(self) -> None:
        self.weights, self._grad = flattened(self.model)
        self.gradient.residual(self._grad)  # made here, before other threads look for it

    def join(self, client: Client, thread: int) -> int:
        """Use the new session of `client`; the first step that this rank has not pushed."""
        self.client, self._since_pull = client, 0
        return client.hello(self.rank, thread, self.weights.numel())

    def step(self, step: int, batch: Batch) -> Stepped:
        """One of the run's. LineLost: what was pushed may have been applied or not."""
        client, now = self.client, self.clock.now
        before, begin = client.bytes, now()
        if self._since_pull % self.pull_every == 0:
            self._version = client.pull(self.weights)
        self._since_pull += 1
        pulled = now()
        loss = self._compute(batch)
        late_s = self._hold_back(pulled)
        computed = now()
        found = self.gradient.compress(step, self._grad)
        compressed = now()
        residual = self.gradient.residual(self._grad)
        norm = 0.0 if residual is None else float(residual.norm())
        index_bytes = 0 if found.index is None else found.index.element_size()
        entries = found.values.numel()
        push = Push(step, self._version, entries, index_bytes, norm, len(found.drained))
        ack = client.push(push, found.values, found.index)
        end = now()
        emulated, after = 1 / self.clock.dilation, client.bytes
        comm_s = (pulled - begin + end - compressed) * emulated
        row = Step(
            step=step,
            rank=self.rank,
            time_s=end * emulated,
            loss=loss,
            samples=len(batch[1]),
            before_s=(computed - pulled) * emulated,  # nothing is sent during backward
            compute_s=(computed - pulled) * emulated,
            compress_s=(compressed - computed) * emulated,
            comm_s=comm_s,
            exposed_s=comm_s,
            sent_bytes=after[0] - before[0],
            received_bytes=after[1] - before[1],
            dense_bytes=self._grad.nbytes,
            density=self.gradient.density,
            controller="{}",
            occupancy=entries / self._grad.numel(),
        )
        drained = [self.gradient.names[layer] for layer in found.drained]
        return Stepped(row, ack, late_s > OVERRUN_SHARE * (end - begin), drained)

    def _compute(self, batch: Batch) -> float:
        """The loss, mean over the batch; micro-batches are averaged."""
        self._grad.zero_()
        total = 0.0
        parts = [part.chunk(self.accumulate) for part in batch]
        for inputs, labels in zip(*parts, strict=True):
            scores = self.task.scores(self.model, inputs)
            loss = self.task.loss(scores, labels) / self.accumulate
            loss.backward()
            total += loss.item()
        return total

    def _hold_back(self, begin: float) -> float:
        """Where computation is paced, wait until it would have ended; by how much it is late."""
        release = self.pace.release(begin)
        if release is None:
            return 0.0
        late_s = self.clock.now() - release(1.0)
        time.sleep(max(0.0, -late_s))
        return max(0.0, late_s)
