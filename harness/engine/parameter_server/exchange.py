"""Exchange of one trainer thread: it pulls weights before a step and pushes its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor

from controllers.base import Observation
from harness.engine.exchange.bucket_lanes import Charge
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.exchange.stats import Exchanged, Release
from harness.engine.parameter_server.client import Client
from harness.engine.parameter_server.gradient import Compressed, Gradient
from harness.engine.parameter_server.messages import Push
from harness.engine.training.buckets import BucketHandle
from harness.records.run_directory import Events, Span


class Trainers(NamedTuple):
    """Stand-in for collectives that only knows the number of trainers."""

    world_size: int
    shards: int = 1  # all of a gradient is pushed


@dataclass
class Pushing:
    """An `Exchanging` (training.step) that uses a parameter server; `join` must be called first."""

    gradient: Gradient
    workers: Trainers
    clock: Any  # a harness.clock.RankClock
    rank: int
    thread: int
    events: Events
    charge: Charge | None = None  # None: compression is measured
    client: Client = field(init=False)
    step: int = field(default=0, init=False)  # number of the current step
    ends: bool = field(default=False, init=False)  # the server has ended the run
    seen: Observation | None = field(default=None, init=False)  # of the last step
    bytes: list[int] = field(default_factory=lambda: [0, 0], init=False)  # sent, received in steps
    _at: dict[str, float] = field(default_factory=dict, init=False)  # times in the current step
    _held: list[BucketBuffers] = field(default_factory=list, init=False)
    _drained: list[str] = field(default_factory=list, init=False)  # parameters drained in this step
    _waited: float = field(default=0.0, init=False)  # for other trainers in this step

    def __post_init__(self) -> None:
        self.reduction, self.stateful = self.gradient.reduction, {"drain": self.gradient.drain}

    def lay(self, weights: Tensor, laid: Sequence[BucketBuffers] = ()) -> None:
        """Set the vector `weights`, [n], to pull into, and the gradient buckets `laid`."""
        self.weights, self.entries = weights, weights.numel()
        self.gradient.recall(laid)

    def join(self, client: Client) -> int:
        """Use `client` from now on; return the first step that this rank has not pushed yet."""
        self.client = client
        self.gradient.captured.settle = client.settle
        return client.hello(self.rank, self.thread, self.entries)

    def pull(self, begin: float) -> float:
        """Pull the weights for a step that began at `begin`; return the time of their arrival."""
        client, self._at = self.client, {"begin": begin}
        self._before, self._waited_before = client.bytes, client.waited
        self.reduction.open(self.seen)
        self._version = client.pull(self.weights)
        return self._mark("pulled")

    def begin(self, release: Release | None) -> None:
        self._release, self._held = release, []
        self.begin_backward()

    def begin_backward(self) -> None:
        self._at["backward"] = self.clock.now()

    def _mark(self, name: str) -> float:
        return self._at.setdefault(name, self.clock.now())

    def submit(
        self, laid: BucketBuffers, last: bool = False, pattern: Tensor | None = None
    ) -> BucketHandle:
        """Keep a bucket; the `last` one compresses and pushes all buckets.

        The buffer is invalid afterwards: the next pull brings weights with the mean applied.
        """
        if pattern is not None:
            laid.buffer.copy_(pattern)
        self._held.append(laid)
        if last:
            self._hold_back()
            compressed = self._compressed()
            self._mark("compressed")
            self._push(compressed)
            self._mark("end")
        return BucketHandle()

    def _hold_back(self) -> None:
        """Wait until the scheduled end of paced computation, and record how late it was."""
        self._late_s = 0.0
        if self._release is not None:
            self._at["backward"], end = self._release(0.0), self._release(1.0)
            self._late_s = max(0.0, self.clock.now() - end)
            self.clock.sleep_until(end)
        self._mark("computed")

    def _compressed(self) -> Compressed:
        if self.charge is None:
            with self.clock.compressing(self.entries):
                return self.gradient.compress(self.step, self._held)
        density = self.reduction.density
        took_s = sum(self.charge(laid, density, self.step) for laid in self._held)
        self.clock.sleep_until(self.clock.now() + took_s)
        return self.gradient.compress(self.step, self._held)

    def _push(self, compressed: Compressed) -> None:
        content, norm = compressed.push, self.gradient.residual_norm()
        self._pushed = content.entries([laid.buffer.numel() for laid in self._held])
        push = Push(
            step=content.step,
            version=self._version,
            tensors=len(content.tensors()),
            density=content.density,
            entries=self._pushed,
            residual_norm=norm,
            drains=len(compressed.drained),
        )
        self.ends = bool(self.client.push(push, content).ends)
        self._drained = compressed.drained
        self._waited = self.client.waited - self._waited_before

    def finish(self) -> Exchanged:
        """Return the statistics of the step's exchange; communication includes the pull."""
        begin, pulled, backward, computed, compressed, end = self._at.values()
        sent, received = (a - b for a, b in zip(self.client.bytes, self._before, strict=True))
        self.bytes = [self.bytes[0] + sent, self.bytes[1] + received]
        comm_s = pulled - begin + end - compressed
        return Exchanged(
            compute_end=computed,
            backward_s=computed - backward,
            late_s=self._late_s,
            overlap_window_s=0.0,
            compress_s=compressed - computed,
            comm_s=comm_s,
            exposed_s=comm_s,
            sent_bytes=sent,
            received_bytes=received,
            inside_bytes=0,
            dense_bytes=4 * self.entries,
            **self.reduction.outcome() | {"achieved_density": self._pushed / self.entries},
        )

    def observe(self, seen: Observation) -> None:
        """Keep a step's observation for the controller, without the time spent on other trainers.

        Also write an event for each parameter whose residual was drained in the step.
        """
        waited_s, self._waited = self._waited / self.clock.dilation, 0.0
        self.seen = replace(seen, comm_s=max(0.0, seen.comm_s - waited_s))
        for name in self._drained:
            self.events.append("drain", seen.time_s, rank=self.rank, step=seen.step, parameter=name)
        self._drained = []

    def spans(self) -> list[Span]:
        """Return the timeline spans of the last step."""
        kinds = ("communicate", "forward", "backward", "compress", "communicate")
        spans = zip(kinds, pairwise(self._at.values()), strict=True)
        return [
            Span(self.step, self.rank, kind, -1, begin, end)
            for kind, (begin, end) in spans
            if end > begin
        ]

    def close(self) -> None:
        return None
