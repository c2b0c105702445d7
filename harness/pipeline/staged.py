"""Where a rank's gradients come from when it holds one stage of a pipeline.

A step: micro-batches go through the stages by the schedule; after the flush every stage exchanges
its gradients with the same stage of the other pipelines, through the compressor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.futures import Future

from harness.exchange import Exchange, ExchangeError
from harness.gradients import MOST_NAMED, bucket_names
from harness.pipeline.link import Arrival, Inlet, Outlet, Sending
from harness.pipeline.meeting import Meeting
from harness.pipeline.schedule import SCHEDULES
from harness.task import Task


class Here(NamedTuple):
    """The stage of this rank, of which pipeline."""

    stage: int
    stages: int
    pipeline: int

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1


@dataclass
class Staged:
    """Real gradients of one stage, `model`; SGD on their mean over pipelines.

    Every rank reads the same batches of its pipeline: the first stage uses the inputs, the last one
    the labels. The last one knows the loss and counts the samples; elsewhere they are nan and 0.
    """

    model: nn.Module
    here: Here
    inlet: Inlet | None  # None: the first stage
    outlet: Outlet | None  # None: the last one
    batches: Any  # iterator of (inputs, labels) of this pipeline
    test_set: Any  # this pipeline's share of the test set: iterator of (inputs, labels)
    optimizer: torch.optim.Optimizer
    learning_rate: Callable[[int], float]
    exchange: Exchange
    meeting: Meeting
    task: Task
    parts: int  # micro-batches of a step
    batch_size: int  # of each
    schedule: str  # gpipe | 1f1b
    bucket_mb: float | None  # None: DDP's own sizes

    def __post_init__(self) -> None:
        self.samples = self.parts * self.batch_size if self.here.is_last else 0
        named = self.model.named_parameters()
        self._trained = {name: parameter for name, parameter in named if parameter.requires_grad}
        sizes = {name: parameter.numel() for name, parameter in self._trained.items()}
        self._buckets = bucket_names(sizes, self.bucket_mb)

    def settle(self, inputs: Tensor) -> None:
        """Take the one-time costs of a step on any micro-batch of this stage; changes nothing."""
        before = [buffer.clone() for buffer in self.model.buffers()]
        self.task.scores(self.model, inputs.requires_grad_()).sum().backward()
        self.optimizer.zero_grad()
        for buffer, value in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(value)

    def compute(self, step: int) -> float:
        inputs, labels = next(self.batches)
        work = list(SCHEDULES[self.schedule](self.here.stage, self.here.stages, self.parts))
        if self.inlet:
            self.inlet.expect(self.batch_size, self.parts)
        flow = _Flow(self, inputs.chunk(self.parts), labels.chunk(self.parts))
        for way, part in work:
            if way == "forward":
                flow.forward(part)
            else:
                if part == 0:
                    self.exchange.begin_backward()
                flow.backward(part)
        self._exchange()
        for end in self.ends():
            end.flush()
        return flow.loss if self.here.is_last else float("nan")

    def ends(self) -> list[Inlet | Outlet]:
        """Of the cuts beside this stage."""
        return [end for end in (self.inlet, self.outlet) if end is not None]

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
            if self.inlet:
                self.inlet.expect(len(labels))
                inputs = self.inlet.receive().inputs
            outputs = self.task.scores(self.model, inputs)
            if self.outlet:
                self.outlet.show(outputs)
            else:
                sums += self.task.tested(nn.Identity(), [(outputs, labels)]).cpu()
        for end in self.ends():
            end.flush()
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
        for end in self.ends():
            end.close()


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


class _Flow:
    """The micro-batches of one step on their way through a stage."""

    def __init__(
        self, staged: Staged, inputs: tuple[Tensor, ...], labels: tuple[Tensor, ...]
    ) -> None:
        self.loss = 0.0
        self._staged, self._inputs, self._labels = staged, inputs, labels
        self._arrivals: dict[int, Arrival] = {}
        self._leaving: dict[int, Sending | Tensor] = {}  # or the loss, in the last stage

    def forward(self, part: int) -> None:
        staged = self._staged
        if staged.inlet:
            arrival = self._arrivals[part] = staged.inlet.receive()
            inputs = arrival.inputs
        else:
            inputs = self._inputs[part]
        outputs = staged.task.scores(staged.model, inputs)
        if staged.outlet:
            self._leaving[part] = staged.outlet.send(outputs)
        else:
            loss = staged.task.loss(outputs, self._labels[part]) / staged.parts
            self._leaving[part] = loss
            self.loss += loss.item()

    def backward(self, part: int) -> None:
        staged, leaving = self._staged, self._leaving.pop(part)
        if isinstance(leaving, Sending):
            assert staged.outlet
            staged.outlet.backward(leaving)
        else:
            leaving.backward()
        if staged.inlet:
            staged.inlet.send_back(self._arrivals.pop(part))
