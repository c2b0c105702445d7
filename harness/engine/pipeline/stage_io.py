"""A cut between two processes: compressed activations forward, compressed gradients backward.

In one process one object works on both sides of a cut (`compressors.activations.operator`). Here
there is one on each side, with a message in between, and training is equal bit for bit. Each side
has a thread that receives and decodes while the process computes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from compressors.activations import calls
from compressors.activations.base import Activations, Piece
from compressors.activations.encoding import VALUE_BYTES, decode, encode, values_bytes
from compressors.activations.operator import Crossed
from compressors.packing import packed_bytes
from harness.clock import RankClock
from harness.engine.pipeline.channel import Channel

Shape = tuple[int, int]  # rows, entries of each
Value = TypeVar("Value")


class PendingResult(Protocol):
    """Pending result of a task on another thread."""

    def result(self) -> Any:
        """Wait for the task and return its result."""
        ...


class SerialExecutor(Protocol):
    """A thread that runs tasks in order, such as an executor of concurrent.futures."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any) -> PendingResult: ...

    def shutdown(self) -> None: ...


class Received(NamedTuple, Generic[Value]):
    """A decoded message, with the times of its arrival and decoding on the clock."""

    value: Value
    received_s: float  # all of it was here
    decoded_s: float


@dataclass
class End:
    """State of one side of a cut; `shape` is one sample's activations, and counters only grow."""

    channel: Channel
    scheme: Activations
    shape: torch.Size
    clock: RankClock
    executor: Callable[[str], SerialExecutor]  # a thread of that name
    dense_bytes: int = field(default=0, init=False)  # of the same pieces without compression
    flushed_s: float = field(default=0.0, init=False)  # real, for what had not left

    def __post_init__(self) -> None:
        self._thread = self.executor(type(self).__name__.lower())

    def _rows(self, samples: int) -> Shape:
        return samples, prod(self.shape)

    def _send(self, piece: Piece, samples: int) -> None:
        self.dense_bytes += VALUE_BYTES * prod(self._rows(samples))
        for message in encode(piece):
            self.channel.send(message)

    def _receive(self, shape: Shape, count: int | None) -> tuple[Piece, float]:
        """Receive the next piece for `shape` rows. With `count` it has no mask."""
        if count is not None:
            values = self.channel.receive(VALUE_BYTES * count)
            return Piece(values.view(torch.float32)), self.clock.now()
        n = prod(shape)
        bits = self.channel.receive(packed_bytes(n, 1))
        nbytes = values_bytes(bits, n)
        values = self.channel.receive(nbytes) if nbytes else bits.new_empty(0)
        received_s = self.clock.now()
        with self.clock.compressing(0):
            return decode(bits, values, shape), received_s

    def flush(self) -> None:
        """Wait until everything sent so far has left. Add the time to `flushed_s`."""
        begin = self.clock.now()
        self.channel.flush()
        self.flushed_s += self.clock.now() - begin

    def close(self) -> None:
        """End the thread, when no task is running."""
        self._thread.shutdown()


class Sending(NamedTuple):
    """A micro-batch that has left, and whose gradient is expected."""

    grad: PendingResult  # a Received[Tensor]


@dataclass
class Outlet(End):
    """The side before the cut, where activations leave."""

    crossed: Crossed = field(default_factory=Crossed, init=False)  # in training

    def send(self, outputs: Tensor) -> Sending:
        """Send a micro-batch of training, [samples, ...]."""
        rows = outputs.detach().flatten(1)
        piece, kept = calls.forward(self.scheme, rows, True)
        self.crossed.add(piece, rows)
        self._send(piece, len(rows))
        return Sending(self._thread.submit(self._grad, self._rows(len(rows)), kept))

    def _grad(self, shape: Shape, kept: Any) -> Received[Tensor]:
        piece, received_s = self._receive(shape, self.scheme.count_back(kept, shape))
        with self.clock.compressing(0):
            grad = calls.returned(self.scheme, piece, kept, shape).view(shape[0], *self.shape)
        return Received(grad, received_s, self.clock.now())

    def returned(self, sending: Sending) -> Received[Tensor]:
        """Wait for the gradient of the activations of `sending`, and return it."""
        return sending.grad.result()

    def show(self, outputs: Tensor) -> None:
        """Send a batch of evaluation, for which nothing comes back."""
        piece, _ = calls.forward(self.scheme, outputs.flatten(1), False)
        self._send(piece, len(outputs))


class Arrival(NamedTuple):
    """A micro-batch that has arrived. Times are those of `Received`."""

    inputs: Tensor  # [samples, ...], a leaf that collects its gradient
    kept: Any
    received_s: float
    decoded_s: float


@dataclass
class Inlet(End):
    """The side behind the cut, where activations arrive."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expected: list[PendingResult] = []

    def expect(self, samples: int, training: bool, times: int = 1) -> None:
        """Announce micro-batches of `samples`, which arrive while this process computes."""
        for _ in range(times):
            shape = self._rows(samples)
            self._expected.append(self._thread.submit(self._activations, shape, training))

    def _activations(self, shape: Shape, training: bool) -> Received[tuple[Tensor, Any]]:
        piece, received_s = self._receive(shape, self.scheme.count(shape))
        with self.clock.compressing(0):
            rows, kept = calls.received(self.scheme, piece, shape, training)
        return Received((rows.view(shape[0], *self.shape), kept), received_s, self.clock.now())

    def receive(self) -> Arrival:
        """Return the next expected micro-batch."""
        (inputs, kept), *times = self._expected.pop(0).result()
        return Arrival(inputs.requires_grad_(), kept, *times)

    def send_back(self, arrival: Arrival, grad: Tensor) -> None:
        """Send the gradient of an arrived micro-batch, [samples, ...]."""
        self._send(calls.backward(self.scheme, grad.flatten(1), arrival.kept), len(grad))
