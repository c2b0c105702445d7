"""A stage without computation: noise of true shapes crosses its cuts, and is exchanged after."""

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.pipeline.engine import PipelineEngine
from harness.engine.training.gradients import Replayed


@dataclass
class ReplayedStage:
    """Activations are noise behind a rectifier, their gradients noise; the same at every step.

    They are really compressed and sent, as are the stage's gradients, of `gradients`. There is no
    loss and nothing to evaluate or save.
    """

    engine: PipelineEngine
    gradients: Replayed
    seed: int

    def __post_init__(self) -> None:
        engine, noise = self.engine, torch.Generator().manual_seed(self.seed)
        self.exchange = self.gradients.exchange
        self.samples = engine.parts * engine.batch_size if engine.position.is_last else 0

        def some(shape: torch.Size) -> Tensor:
            return torch.randn(engine.batch_size, *shape, generator=noise)

        self._outputs = some(engine.outlet.shape).relu_() if engine.outlet else torch.zeros(())
        self._grad = some(engine.inlet.shape) if engine.inlet else None

    def compute(self, step: int) -> float:
        self.engine.run(self, self.gradients.exchange.begin_backward)
        loss = self.gradients.compute(step)
        self.engine.flush()
        return loss

    def forward(self, part: int, inputs: Tensor | None) -> Tensor:
        return self._outputs

    def backward(
        self, part: int, outputs: Tensor, grad: Tensor | None, inputs: Tensor | None
    ) -> Tensor | None:
        return self._grad

    def update(self, step: int) -> None:
        return None

    def evaluate(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.engine.close()
