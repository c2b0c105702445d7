"""Gradients of all ranks in one pass over their batches, if that gives equal bits.

Ranks that share a model have the same weights at every step. In a small model most of a pass is
call overhead, which `torch.func.vmap` pays once for all ranks.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from harness.engine.training.buckets import Buckets
from harness.engine.training.random_numbers import random_numbers, set_random_numbers
from harness.engine.training.task import Task

MOST_ELEMENTS = 1 << 20  # of a model; a larger one has its time in products, not in calls
TRIALS = 4  # steps that are done both ways: bits are compared, and the least times


class Share(NamedTuple):
    """One rank's part of a step."""

    inputs: Tensor
    labels: Tensor
    buckets: Buckets  # for its gradients


def suits(model: nn.Module) -> bool:
    """Return True for a small model without hooks and without buffers."""
    looked_into = any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    elements = sum(parameter.numel() for parameter in model.parameters())
    return not (looked_into or any(True for _ in model.buffers())) and elements <= MOST_ELEMENTS


@dataclass
class OnePass:
    """Forward and backward of all ranks in one pass. `is_open` while it should be used.

    The first steps run both ways. If one pass gives other bits, is slower, or fails because the
    model draws random numbers or carries state, each rank computes on its own from then on.
    """

    model: nn.Module
    is_open: bool = True
    _trials: int = field(default=0, init=False)
    _least_s: list[float] = field(default_factory=lambda: [inf, inf], init=False)  # one pass, alone

    def losses(self, task: Task, shares: Sequence[Share]) -> list[float] | list[None]:
        """Compute every rank's loss, and write the gradients to its buckets.

        Return a list of None if the ranks must compute one after another instead.
        """
        if self._trials < TRIALS:
            self.is_open = suits(self.model) and self._tries(task, shares)
        return self._in_one_pass(task, shares) if self.is_open else [None] * len(shares)

    def _tries(self, task: Task, shares: Sequence[Share]) -> bool:
        """Return True if one pass gives equal bits and, after the last trial, takes less time."""
        before = random_numbers(task.device)
        try:
            in_one = self._timed(0, self._in_one_pass, task, shares)
        except Exception:  # a real error shows in the pass rank by rank
            set_random_numbers(before, task.device)
            return False
        alone = self._timed(1, self._one_by_one, task, shares)
        same = all(torch.equal(a, b) for a, b in zip(in_one, alone, strict=True))
        self._trials += 1
        in_one_s, alone_s = self._least_s
        return same and (self._trials < TRIALS or in_one_s < alone_s)

    def _timed(
        self, way: int, compute: Callable[..., list[float]], task: Task, shares: Sequence[Share]
    ) -> list[Tensor]:
        """Run `compute` and return copies of the losses, [ranks], and of all gradient buckets.

        Keep the least time of this `way`: 0 for one pass, 1 for rank by rank.
        """
        began = time.thread_time()
        losses = compute(task, shares)
        self._least_s[way] = min(self._least_s[way], time.thread_time() - began)
        memory = [laid.buffer.clone() for share in shares for laid in share.buckets.laid]
        return [torch.tensor(losses, dtype=torch.float64), *memory]

    def _in_one_pass(self, task: Task, shares: Sequence[Share]) -> list[float]:
        named = self.model.named_parameters()
        weights = {name: each.detach() for name, each in named if each.requires_grad}
        inputs = torch.stack([share.inputs for share in shares])
        labels = torch.stack([share.labels for share in shares])

        def loss(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
            scores = functional_call(self.model, weights, (inputs.to(task.device),)).float()
            return task.loss(scores, labels), scores

        every = vmap(grad(loss, has_aux=True), in_dims=(None, 0, 0))
        gradients, scores = every(weights, inputs, labels)
        for rank, share in enumerate(shares):
            share.buckets.put({name: each[rank] for name, each in gradients.items()})
        pairs = zip(scores, labels, strict=True)  # a mean over ranks at once rounds otherwise
        return [task.loss(*pair).item() for pair in pairs]

    def _one_by_one(self, task: Task, shares: Sequence[Share]) -> list[float]:
        losses = []
        for inputs, labels, buckets in shares:
            loss = task.loss(task.scores(self.model, inputs), labels)
            loss.backward()
            buckets.take()
            losses.append(loss.item())
        return losses
