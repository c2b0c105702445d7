"""The common weights of all workers (anchors), and the outer optimizer that moves them.

D is the mean over workers of anchor - weights, a pseudo-gradient. Then v <- mu v + D, and the
anchor moves by -lr (D + mu v), as in `torch.optim.SGD(nesterov=True)`, by -lr v, or by -lr D
(Douillard et al., 2023, algorithm 1). A worker continues from blend x its weights + (1 - blend) x
the anchor (Douillard et al., 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.config.local_steps import LocalSteps
from harness.engine.local_steps.fragments import Fragment


@dataclass
class OuterModel:
    """Common weights of all workers (anchors) and their velocities, by name, float32.

    Anchors also have the model's statistics. If the worker is `alone`, there is no mean to take.
    Its step then starts at the weights it sent, which avoids the rounding of anchor - (anchor -
    weights). At learning rate 1 without momentum it trains bit for bit as without rounds.
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
        """Write the movement of fragment `number` to its pseudo-gradients `into`, by name.

        For statistics, and with gossip, the values themselves are averaged.
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
        """Move the anchors of fragment `number` by the `means`, and the weights towards them."""
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
        """Return the outer optimizer's step times the learning rate, to subtract from an anchor."""
        layout, step = self.layout, mean
        if name in self.velocities:
            velocity = self.velocities[name].mul_(layout.outer_momentum).add_(mean)
            nesterov = layout.outer == "nesterov"
            step = mean.add(velocity, alpha=layout.outer_momentum) if nesterov else velocity
        return step * layout.outer_lr
