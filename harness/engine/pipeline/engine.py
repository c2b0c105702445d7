"""The micro-batches of one step on their way through a stage, in the order of its schedule."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from harness.engine.pipeline.device import Device
from harness.engine.pipeline.gradient_norm import GradientNorm
from harness.engine.pipeline.stage_io import Arrival, Inlet, Outlet, Sending

Work = tuple[str, int]  # forward | backward, number of the micro-batch


class StagePosition(NamedTuple):
    """The stage of this rank, and its pipeline."""

    stage: int
    stages: int
    pipeline: int

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1


class Computing(Protocol):
    """Computation of a stage on one micro-batch, whose number is `part`."""

    def forward(self, part: int, inputs: Tensor | None) -> Tensor:
        """Return activations, or in the last stage the loss; the first gets `inputs` None."""
        ...

    def backward(
        self, part: int, outputs: Tensor, grad: Tensor | None, inputs: Tensor | None
    ) -> Tensor | None:
        """Return the gradient of `inputs` from that of `outputs`, None for a loss or a batch."""
        ...


@dataclass
class PipelineEngine:
    """Runner of the micro-batches of stage `position`. An end is None where there is no cut."""

    position: StagePosition
    inlet: Inlet | None
    outlet: Outlet | None
    device: Device
    schedule: str  # gpipe | 1f1b
    parts: int  # micro-batches of a step
    batch_size: int  # of each
    norm: GradientNorm | None = None  # None: gradients are not clipped
    _arrivals: dict[int, Arrival] = field(default_factory=dict, init=False)
    _leaving: dict[int, tuple[Tensor, Sending | None]] = field(default_factory=dict, init=False)

    def run(self, stage: Computing, begin_backward: Callable[[], None]) -> None:
        """Run forward and backward of all micro-batches of `stage`, in the order of the schedule.

        Call `begin_backward` just before the first backward. Messages may still be leaving on
        return; `flush` waits for them.
        """
        if self.inlet:
            self.inlet.expect(self.batch_size, True, self.parts)
        order = SCHEDULES[self.schedule](self.position.stage, self.position.stages, self.parts)
        for way, part in order:
            if way == "forward":
                self._forward(stage, part)
            else:
                if part == 0:
                    begin_backward()
                self._backward(stage, part)

    def _forward(self, stage: Computing, part: int) -> None:
        device, inputs = self.device, None
        device.rest()
        if self.inlet:
            arrival = self._arrivals[part] = self.inlet.receive()
            inputs = arrival.inputs
            device.begin(arrival.received_s, arrival.decoded_s)
        else:
            device.begin()
        with device.clock.computing():
            outputs = stage.forward(part, inputs)
        device.end("forward", part)
        sending = None
        if self.outlet:
            with device.compressing(outputs.numel(), part):
                sending = self.outlet.send(outputs)
        self._leaving[part] = outputs, sending

    def _backward(self, stage: Computing, part: int) -> None:
        device, grad = self.device, None
        outputs, sending = self._leaving.pop(part)
        device.rest()
        if sending:
            assert self.outlet
            came = self.outlet.returned(sending)
            grad = came.value
            device.begin(came.received_s, came.decoded_s)
        else:
            device.begin()
        arrival = self._arrivals.pop(part, None)
        with device.clock.computing():
            below = stage.backward(part, outputs, grad, arrival and arrival.inputs)
        device.end("backward", part)
        if self.inlet:
            assert arrival and below is not None
            with device.compressing(below.numel(), part):
                self.inlet.send_back(arrival, below)

    def ends(self) -> list[Inlet | Outlet]:
        """Return the ends of the cuts beside this stage: none, one or two."""
        return [end for end in (self.inlet, self.outlet) if end is not None]

    def flush(self) -> None:
        """Wait until everything has left."""
        for end in self.ends():
            end.flush()

    def close(self) -> None:
        for end in self.ends():
            end.close()


def gpipe(stage: int, stages: int, parts: int) -> Iterator[Work]:
    """Yield all forward, then all backward parts (Huang et al., 2019); keeps all activations."""
    yield from (("forward", part) for part in range(parts))
    yield from (("backward", part) for part in range(parts))


def one_forward_one_backward(stage: int, stages: int, parts: int) -> Iterator[Work]:
    """Yield 1F1B with a flush (Narayanan et al., 2021); keeps at most stages - stage parts."""
    ahead = min(parts, stages - 1 - stage)
    yield from (("forward", part) for part in range(ahead))
    for part in range(parts - ahead):
        yield "forward", ahead + part
        yield "backward", part
    yield from (("backward", part) for part in range(parts - ahead, parts))


SCHEDULES: dict[str, Callable[[int, int, int], Iterator[Work]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
}
