"""Where a rank's gradients come from when it holds one stage of a pipeline: a model, or noise.

A step: micro-batches go through the stages by the schedule; after the flush every stage exchanges
its gradients with the same stage of the other pipelines, through the compressor.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from harness.engine.pipeline.engine import PipelineEngine
from harness.engine.pipeline.object_gather import ObjectGather
from harness.engine.training.gradients import Replayed, Trained


@dataclass(kw_only=True)
class Staged(Trained):
    """Real gradients of one stage, `model`; SGD on their mean over pipelines.

    Every rank reads the same batches of its pipeline: the first stage uses the inputs, the last one
    the labels. The last one knows the loss and counts the samples; elsewhere they are nan and 0.
    """

    engine: PipelineEngine
    object_gather: ObjectGather

    def __post_init__(self) -> None:
        super().__post_init__()
        self.position = self.engine.position
        self.samples = self.samples if self.position.is_last else 0

    def settle(self, inputs: Tensor) -> None:
        before = [buffer.clone() for buffer in self.model.buffers()]
        inlet = self.engine.inlet
        came = torch.zeros(len(inputs), *inlet.shape, requires_grad=True) if inlet else None
        self._scores(inputs, came).sum().backward()
        self.optimizer.zero_grad()
        for buffer, value in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(value)

    def compute(self, step: int) -> float:
        with self.clock.computing():
            inputs, labels = next(self.batches)
        self._inputs, self._labels = inputs.chunk(self.accumulate), labels.chunk(self.accumulate)
        self._total = 0.0 if self.position.is_last else float("nan")
        self.engine.run(self, self.exchange.begin_backward)
        self.replica.exchange_rest()
        self.engine.flush()
        return self._total

    def forward(self, part: int, inputs: Tensor | None) -> Tensor:
        outputs = self._scores(self._inputs[part], inputs)
        if not self.position.is_last:
            return outputs
        loss = self.task.loss(outputs, self._labels[part]) / self.accumulate
        self._total += loss.item()
        return loss

    def _scores(self, samples: Tensor, came: Tensor | None) -> Tensor:
        """Output of the stage for `came`, from the last cut, or for the batch `samples` if None."""
        samples = samples.to(self.task.device)
        model: Any = partial(self.model, inputs=samples)
        return self.task.scores(model, samples if came is None else came)

    def backward(
        self, part: int, outputs: Tensor, grad: Tensor | None, inputs: Tensor | None
    ) -> Tensor | None:
        outputs.backward(grad)
        return None if inputs is None else inputs.grad

    def update(self, step: int) -> None:
        with self.clock.computing():
            super().update(step)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Through the pipelines, each its share; what crosses a cut is compressed as ever."""
        self._take_buffers_of_the_first()
        self.model.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        for inputs, labels in self.course.test_set():
            came = None
            if self.engine.inlet:
                self.engine.inlet.expect(len(labels))
                came = self.engine.inlet.receive().inputs
            outputs = self._scores(inputs, came)
            if self.engine.outlet:
                self.engine.outlet.show(outputs)
            else:
                sums += self.task.tested(nn.Identity(), [(outputs, labels)]).cpu()
        self.engine.flush()
        self.model.train()
        return self.task.metrics(torch.stack(self.object_gather.gather(sums)).sum(0))

    def _take_buffers_of_the_first(self) -> None:
        """Statistics of the first pipeline's batches are evaluated, and saved."""
        own = dict(self.model.named_buffers())
        told = self.object_gather.gather(own if self.position.pipeline == 0 else {})
        theirs = told[self.position.stage]
        for name, buffer in own.items():
            buffer.copy_(theirs[name])

    def shared(self) -> dict[str, Any]:
        """State for a checkpoint from any one rank: the whole model, as if it were not cut."""
        own = self.model.state_dict() if self.position.pipeline == 0 else {}
        return {"model": {k: v for part in self.object_gather.gather(own) for k, v in part.items()}}

    def own(self) -> dict[str, Any]:
        return super().own() | {"optimizer": self.optimizer.state_dict()}

    def close(self) -> None:
        self.engine.close()


@dataclass(kw_only=True)
class ReplayedStage(Replayed):
    """A stage without computation: noise of true shapes crosses its cuts, and is exchanged after.

    Activations are noise behind a rectifier, their gradients noise; the same at every step. They
    are really compressed and sent, as are the stage's gradients.
    """

    engine: PipelineEngine

    def __post_init__(self) -> None:
        super().__post_init__()
        engine, noise = self.engine, torch.Generator().manual_seed(self.seed)
        self.samples = self.samples if engine.position.is_last else 0

        def some(shape: torch.Size) -> Tensor:
            return torch.randn(engine.batch_size, *shape, generator=noise)

        self._outputs = some(engine.outlet.shape).relu_() if engine.outlet else torch.zeros(())
        self._grad = some(engine.inlet.shape) if engine.inlet else None

    def compute(self, step: int) -> float:
        self.engine.run(self, self.exchange.begin_backward)
        loss = super().compute(step)
        self.engine.flush()
        return loss

    def forward(self, part: int, inputs: Tensor | None) -> Tensor:
        return self._outputs

    def backward(
        self, part: int, outputs: Tensor, grad: Tensor | None, inputs: Tensor | None
    ) -> Tensor | None:
        return self._grad

    def close(self) -> None:
        self.engine.close()
