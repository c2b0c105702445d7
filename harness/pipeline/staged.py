"""Where a rank's gradients come from when it holds one stage of a pipeline.

A step: micro-batches go through the stages by the schedule; after the flush every stage exchanges
its gradients with the same stage of the other pipelines, through the compressor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.futures import Future

from harness.exchange.thread import Exchange, ExchangeError
from harness.pipeline.flow import Flow
from harness.pipeline.meeting import Meeting
from harness.training.gradients import MOST_NAMED, bucket_names
from harness.training.task import Task


@dataclass
class Staged:
    """Real gradients of one stage, `model`; SGD on their mean over pipelines.

    Every rank reads the same batches of its pipeline: the first stage uses the inputs, the last one
    the labels. The last one knows the loss and counts the samples; elsewhere they are nan and 0.
    """

    model: nn.Module
    flow: Flow
    batches: Any  # iterator of (inputs, labels) of this pipeline
    test_set: Any  # this pipeline's share of the test set: iterator of (inputs, labels)
    optimizer: torch.optim.Optimizer
    learning_rate: Callable[[int], float]
    exchange: Exchange
    meeting: Meeting
    task: Task
    bucket_mb: float | None  # None: DDP's own sizes

    def __post_init__(self) -> None:
        self.here, self.parts = self.flow.here, self.flow.parts
        self.samples = self.parts * self.flow.batch_size if self.here.is_last else 0
        named = self.model.named_parameters()
        self._trained = {name: parameter for name, parameter in named if parameter.requires_grad}
        sizes = {name: parameter.numel() for name, parameter in self._trained.items()}
        self._buckets = bucket_names(sizes, self.bucket_mb)

    def settle(self, samples: Tensor) -> None:
        """Take the one-time costs of a step on a micro-batch of any `samples`; changes nothing."""
        before = [buffer.clone() for buffer in self.model.buffers()]
        inlet = self.flow.inlet
        came = torch.zeros(len(samples), *inlet.shape, requires_grad=True) if inlet else None
        self._scores(samples, came).sum().backward()
        self.optimizer.zero_grad()
        for buffer, value in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(value)

    def compute(self, step: int) -> float:
        inputs, labels = next(self.batches)
        self._inputs, self._labels = inputs.chunk(self.parts), labels.chunk(self.parts)
        self._loss = 0.0 if self.here.is_last else float("nan")
        self.flow.run(self, self.exchange.begin_backward)
        self._exchange()
        self.flow.flush()
        return self._loss

    def forward(self, part: int, inputs: Tensor | None) -> Tensor:
        outputs = self._scores(self._inputs[part], inputs)
        if not self.here.is_last:
            return outputs
        loss = self.task.loss(outputs, self._labels[part]) / self.parts
        self._loss += loss.item()
        return loss

    def _scores(self, samples: Tensor, came: Tensor | None) -> Tensor:
        """What the stage makes of what `came` by the last cut, or None, of a batch `samples`."""
        samples = samples.to(self.task.device)
        model: Any = partial(self.model, inputs=samples)
        return self.task.scores(model, samples if came is None else came)

    def backward(
        self, part: int, outputs: Tensor, grad: Tensor | None, inputs: Tensor | None
    ) -> Tensor | None:
        outputs.backward(grad)
        return None if inputs is None else inputs.grad

    def _exchange(self) -> None:
        """Replace every gradient by its mean over pipelines."""
        self._require_all()
        handed = [self._handed_over(names) for names in self._buckets]
        for future, names, means in handed:
            try:
                future.wait()
            except RuntimeError as error:
                cause = self.exchange.error or error
                raise ExchangeError(str(cause)) from cause
            for name, mean in zip(names, means, strict=True):
                self._trained[name].grad = mean

    def _handed_over(self, names: tuple[str, ...]) -> tuple[Future, tuple[str, ...], list[Tensor]]:
        """A bucket on its way, and where the mean of each of its gradients will be."""
        parameters = [self._trained[name] for name in names]
        buffer = torch.cat([_grad(parameter).flatten() for parameter in parameters])
        parts = buffer.split([parameter.numel() for parameter in parameters])
        views = [part.view_as(like) for part, like in zip(parts, parameters, strict=True)]
        held = [parameter.detach() for parameter in parameters]
        last = names is self._buckets[-1]
        return self.exchange.submit(buffer, names, views, held, last), names, views

    def _require_all(self) -> None:
        missing = [name for name, parameter in self._trained.items() if parameter.grad is None]
        if missing:
            raise ValueError(
                f"model: no gradient reached {', '.join(missing[:MOST_NAMED])}"
                f"{' and others' if len(missing) > MOST_NAMED else ''}; every parameter must take "
                "part in every step: use it, or set requires_grad = False"
            )

    def update(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Through the pipelines, each its share; what crosses a cut is compressed as ever."""
        self._take_buffers_of_the_first()
        self.model.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        for inputs, labels in self.test_set():
            came = None
            if self.flow.inlet:
                self.flow.inlet.expect(len(labels))
                came = self.flow.inlet.receive().inputs
            outputs = self._scores(inputs, came)
            if self.flow.outlet:
                self.flow.outlet.show(outputs)
            else:
                sums += self.task.tested(nn.Identity(), [(outputs, labels)]).cpu()
        self.flow.flush()
        self.model.train()
        return self.task.metrics(torch.stack(self.meeting.gather(sums)).sum(0))

    def _take_buffers_of_the_first(self) -> None:
        """Statistics of the first pipeline's batches are evaluated, and saved."""
        own = dict(self.model.named_buffers())
        told = self.meeting.gather(own if self.here.pipeline == 0 else {})
        theirs = told[self.here.stage]
        for name, buffer in own.items():
            buffer.copy_(theirs[name])

    def shared(self) -> dict[str, Any]:
        """What a checkpoint needs of any one rank: the whole model, as if it were not cut."""
        own = self.model.state_dict() if self.here.pipeline == 0 else {}
        return {"model": {k: v for part in self.meeting.gather(own) for k, v in part.items()}}

    def own(self) -> dict[str, Any]:
        """What it needs of every rank."""
        on_cuda = self.task.device.type == "cuda"
        return {
            "buffers": dict(self.model.named_buffers()),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.task.device) if on_cuda else None,
        }

    def restore(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        """Be where `shared` and this rank's `own` were taken; batches are another matter."""
        names = self.model.state_dict()
        self.model.load_state_dict({name: shared["model"][name] for name in names})
        self.optimizer.load_state_dict(own["optimizer"])
        for name, buffer in self.model.named_buffers():
            buffer.copy_(own["buffers"][name])
        torch.set_rng_state(own["random"])
        if own["random_cuda"] is not None:
            torch.cuda.set_rng_state(own["random_cuda"], self.task.device)

    def close(self) -> None:
        self.flow.close()


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
