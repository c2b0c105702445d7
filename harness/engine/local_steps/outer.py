"""The weights that workers have in common, and the outer optimizer that moves them.

With D the mean over workers of what their weights moved back, anchor - weights (a pseudo-gradient):
v <- mu v + D; anchor <- anchor - lr (D + mu v), as `torch.optim.SGD(nesterov=True)` has it, or
anchor - lr v, or anchor - lr D (Douillard et al., 2023, algorithm 1). A worker then goes on from
blend x its weights + (1 - blend) x the anchor (Douillard et al., 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.config.local_steps import LocalSteps
from harness.engine.local_steps.fragments import Fragment


@dataclass
class OuterModel:
    """Anchors of all trained parameters and statistics of a model, and their velocities, float32.

    All workers have the same ones. One that is `alone` has nothing to average, so it takes its step
    from where its weights are, lr D - D, and no rounding of anchor - (anchor - weights) is left:
    at lr 1 without momentum it trains as if there were no rounds, bit for bit.
    """

    fragments: Sequence[Fragment]
    layout: LocalSteps
    alone: bool
    anchors: dict[str, Tensor] = field(init=False)
    velocities: dict[str, Tensor] = field(init=False)
    sent: dict[str, Tensor] = field(default_factory=dict, init=False)  # weights, of one alone

    def __post_init__(self) -> None:
        self.anchors = {
            name: each.detach().clone()
            for fragment in self.fragments
            for name, each in {**fragment.parameters, **fragment.statistics}.items()
        }
        kept = [each for each in self.fragments if self.layout.outer != "none"]
        self.velocities = {
            name: torch.zeros_like(each, memory_format=torch.contiguous_format).detach()
            for fragment in kept
            for name, each in fragment.parameters.items()
        }

    @torch.no_grad()
    def moved(self, number: int, into: dict[str, Tensor]) -> None:
        """Write what fragment `number` has moved to its pseudo-gradients `into`, by name.

        Of statistics, and with gossip, it is their values that are averaged.
        """
        parameters, statistics = self.fragments[number]
        for name, each in parameters.items():
            if self.layout.is_gossip:
                into[name].copy_(each)
            else:
                torch.sub(self.anchors[name], each, out=into[name])
            if self.alone:
                self.sent[name] = each.detach().clone()
        for name, each in statistics.items():
            into[name].copy_(each)

    @torch.no_grad()
    def land(self, number: int, means: dict[str, Tensor], blend: float) -> None:
        """Move the anchors of fragment `number` by the `means`, and its weights to them."""
        parameters, statistics = self.fragments[number]
        for name, each in parameters.items():
            anchor, mean = self.anchors[name], means[name]
            move = self._move(name, anchor - mean if self.layout.is_gossip else mean)
            if self.alone:
                sent = self.sent.pop(name)
                move.sub_(anchor - sent)
                anchor.copy_(sent)
            anchor.sub_(move)
            if blend:
                each.mul_(blend).add_(anchor, alpha=1 - blend)
            else:
                each.copy_(anchor)
        for name, each in statistics.items():
            self.anchors[name].copy_(means[name])
            each.copy_(means[name])

    def _move(self, name: str, mean: Tensor) -> Tensor:
        """Return what is taken off an anchor: learning rate times the outer optimizer's step."""
        layout, step = self.layout, mean
        if name in self.velocities:
            velocity = self.velocities[name].mul_(layout.outer_momentum).add_(mean)
            nesterov = layout.outer == "nesterov"
            step = mean.add(velocity, alpha=layout.outer_momentum) if nesterov else velocity
        return step * layout.outer_lr
