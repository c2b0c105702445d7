"""Gradients of a rank that holds one stage of a pipeline: from a model, or noise.

In a step, micro-batches go through the stages by the schedule. After the flush every stage
exchanges its gradients with the same stage of the other pipelines, through the compressor.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from harness.engine.pipeline.engine import PipelineEngine, StagePosition
from harness.engine.pipeline.object_gather import ObjectGather
from harness.engine.training.gradients import Replayed, Trained
from harness.engine.training.replica import Gathered, put, unchanged


@dataclass
class StageReplica(Gathered):
    """The part of a model that one stage of all pipelines has, here the one at `position`."""

    position: StagePosition
    object_gather: ObjectGather

    def of_the_first(self, mine: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Gather tensors by name from the first pipeline. Return its ranks' dictionaries, by stage.

        All ranks call it together, also those of other pipelines, whose `mine` is ignored.
        """
        told = self.object_gather.gather(mine if self.position.pipeline == 0 else {})
        return told[: self.position.stages]

    def take_buffers_of_the_first(self) -> None:
        """Overwrite this model's buffers by the first pipeline's, with all ranks together."""
        own = dict(self.model.named_buffers())
        put(own.values(), self.of_the_first(own)[self.position.stage].values())

    def summed(self, sums: Tensor) -> Tensor:
        return torch.stack(self.object_gather.gather(sums)).sum(0)


@dataclass(kw_only=True)
class PipelineStage(Trained):
    """Real gradients of one stage, `model`, with SGD on their mean over pipelines.

    Every rank reads the same batches of its pipeline. The first stage uses the inputs, and the last
    one the labels. Only the last one knows the loss and the number of samples, elsewhere nan and 0.
    """

    replica: StageReplica
    engine: PipelineEngine

    def settle(self, inputs: Tensor) -> None:
        inlet = self.engine.inlet
        came = torch.zeros(len(inputs), *inlet.shape, requires_grad=True) if inlet else None
        with unchanged(self.model):
            self._scores(inputs, came).sum().backward()

    def compute(self, step: int) -> float:
        with self.clock.computing():
            inputs, labels = next(self.batches)
        self._inputs, self._labels = inputs.chunk(self.accumulate), labels.chunk(self.accumulate)
        self._total = 0.0 if self.engine.position.is_last else float("nan")
        self.engine.run(self, self.exchange.begin_backward)
        self.replica.exchange_rest()
        self.engine.flush()
        if self.engine.norm:
            gradients = (each.grad for each in self.model.parameters())
            self._norm = self.engine.norm.of([each for each in gradients if each is not None])
        return self._total

    def clip(self, most: float) -> None:
        nn.utils.clip_grads_with_norm_(self.model.parameters(), most, self._norm)

    def forward(self, part: int, inputs: Tensor | None) -> Tensor:
        outputs = self._scores(self._inputs[part], inputs)
        if not self.engine.position.is_last:
            return outputs
        loss = self.task.loss(outputs, self._labels[part]) / self.accumulate
        self._total += loss.item()
        return loss

    def _scores(self, samples: Tensor, came: Tensor | None) -> Tensor:
        """Return the stage's output for `came`, from the last cut, or for the batch `samples`."""
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

    def tested(self) -> Tensor:
        """Evaluate the test set through the pipelines. Return this rank's sums, float64 [3].

        They are of right answers, losses and labels, and zero unless this is the last stage. Each
        pipeline evaluates its share of the test set. Activations are compressed as in training.
        """
        sums = torch.zeros(3, dtype=torch.float64)
        for inputs, labels in self.course.test_set():
            came = None
            if self.engine.inlet:
                self.engine.inlet.expect(len(labels), False)
                came = self.engine.inlet.receive().inputs
            outputs = self._scores(inputs, came)
            if self.engine.outlet:
                self.engine.outlet.show(outputs)
            else:
                sums += self.task.tested(nn.Identity(), [(outputs, labels)]).cpu()
        self.engine.flush()
        return sums

    def shared(self) -> dict[str, Any]:
        """Return the state that is equal on all ranks: the whole model, as if it were not cut."""
        parts = self.replica.of_the_first(self.model.state_dict())
        return {"model": {name: value for part in parts for name, value in part.items()}}

    def own(self) -> dict[str, Any]:
        return super().own() | {"optimizer": self.optimizer.state_dict()}

    def close(self) -> None:
        self.engine.close()


@dataclass(kw_only=True)
class ReplayedStage(Replayed):
    """A stage without computation: noise of true shapes crosses its cuts and is exchanged.

    Activations are rectified noise, and gradients noise, the same at every step. They are really
    compressed and sent, as are the stage's gradients.
    """

    engine: PipelineEngine

    def __post_init__(self) -> None:
        super().__post_init__()
        engine, noise = self.engine, torch.Generator().manual_seed(self.seed)

        def some(shape: torch.Size) -> Tensor:
            return torch.randn(engine.batch_size, *shape, generator=noise)

        self._outputs = some(engine.outlet.shape).relu_() if engine.outlet else torch.zeros(())
        self._grad = some(engine.inlet.shape) if engine.inlet else None

    def compute(self, step: int) -> float:
        self.engine.run(self, self.exchange.begin_backward)
        loss = super().compute(step)
        self.engine.flush()
        if self.engine.norm:
            self.engine.norm.of(torch.zeros(len(self.parameters), 1))
        return loss

    def forward(self, part: int, inputs: Tensor | None) -> Tensor:
        return self._outputs

    def backward(
        self, part: int, outputs: Tensor, grad: Tensor | None, inputs: Tensor | None
    ) -> Tensor | None:
        return self._grad

    def close(self) -> None:
        self.engine.close()
