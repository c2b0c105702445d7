"""The exchange of a trainer's thread: weights are pulled before a step, its gradient is pushed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor

from controllers.base import Observation
from harness.engine.exchange.exchange_stats import Exchanged, Release
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.exchange.runner import Charge
from harness.engine.parameter_server.client import Client
from harness.engine.parameter_server.gradient import Compressed, Gradient
from harness.engine.parameter_server.messages import Push
from harness.engine.training.buckets import BucketHandle
from harness.records.run_directory import Events, Span


class Trainers(NamedTuple):
    """The trainers of a run."""

    world_size: int


@dataclass
class Pushing:
    """A `harness.engine.training.step.Exchanging` by way of a server, which `join` makes known."""

    gradient: Gradient
    workers: Trainers
    clock: Any  # a harness.clock.RankClock
    pull_every: int
    rank: int
    thread: int
    events: Events
    charge: Charge | None = None  # None: compression is measured
    step: int = field(default=0, init=False)  # that is being done
    ends: bool = field(default=False, init=False)  # no more steps are to be done
    seen: Observation | None = field(default=None, init=False)  # of the last step
    bytes: list[int] = field(default_factory=lambda: [0, 0], init=False)  # of steps, since `join`
    _at: dict[str, float] = field(default_factory=dict, init=False)  # of the step, on the clock
    _held: list[BucketBuffers] = field(default_factory=list, init=False)
    _drained: list[str] = field(default_factory=list, init=False)  # parameters, in this step
    _waited: float = field(default=0.0, init=False)  # for other trainers, in this step

    def __post_init__(self) -> None:
        self.reduction, self.stateful = self.gradient.reduction, {"drain": self.gradient.drain}

    def lay(self, weights: Tensor, laid: Sequence[BucketBuffers] = ()) -> None:
        """Pull into `weights`, [n]; gradients will be these."""
        self.weights, self.entries = weights, weights.numel()
        self.gradient.recall(laid)

    def join(self, client: Client) -> int:
        """Use the new session of `client`; the first step that this rank has not pushed."""
        self.client, self.bytes, self._since_pull = client, [0, 0], 0  # steps
        self.gradient.captured.settle = client.settle
        return client.hello(self.rank, self.thread, self.entries)

    def pull(self, begin: float) -> float:
        """Pull the weights of a step, where they are due; returns when they are there."""
        client, self._at = self.client, {"begin": begin}
        self._before, self._waited_before = client.bytes, client.waited
        self.reduction.open(self.seen)
        if self._since_pull % self.pull_every == 0:
            self._version = client.pull(self.weights)
        self._since_pull += 1
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
        """One bucket; the `last` pushes all. ConnectionLost: it may have been applied or not.

        What is left in its buffer is of no use: the mean is in the weights that are pulled next.
        """
        if pattern is not None:
            laid.buffer.copy_(pattern)
        self._held.append(laid)
        if last:
            self._hold_back()
            found = self._compressed()
            self._mark("compressed")
            self._push(found)
            self._mark("end")
        return BucketHandle()

    def _hold_back(self) -> None:
        """Wait until paced computation would have ended."""
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

    def _push(self, found: Compressed) -> None:
        content, norm = found.push, self.gradient.residual_norm()
        self._pushed = content.entries([laid.buffer.numel() for laid in self._held])
        push = Push(
            step=content.step,
            version=self._version,
            tensors=len(content.tensors()),
            density=content.density,
            entries=self._pushed,
            residual_norm=norm,
            drains=len(found.drained),
        )
        self.ends = bool(self.client.push(push, content).ends)
        self._drained = found.drained
        self._waited = self.client.waited - self._waited_before

    def finish(self) -> Exchanged:
        """As an exchange that begins when backward has ended, and of which a pull is a part."""
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
            dense_bytes=4 * self.entries,
            density=self.reduction.density,
            achieved_density=self._pushed / self.entries,
            **self.reduction.norms()._asdict(),
        )

    def observe(self, seen: Observation) -> None:
        """Keep a step for the controller, without the delay that other trainers caused."""
        waited_s, self._waited = self._waited / self.clock.dilation, 0.0
        self.seen = replace(seen, comm_s=max(0.0, seen.comm_s - waited_s))
        for name in self._drained:
            told = {"rank": self.rank, "step": seen.step, "parameter": name}
            self.events.append("drain", seen.time_s, **told)
        self._drained = []

    def spans(self) -> list[Span]:
        """Spans of the last step."""
        kinds = ("communicate", "forward", "backward", "compress", "communicate")
        spans = zip(kinds, pairwise(self._at.values()), strict=True)
        of = self.step, self.rank
        return [Span(*of, kind, -1, *span) for kind, span in spans if span[1] > span[0]]

    def close(self) -> None:
        return None
