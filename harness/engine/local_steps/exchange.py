"""The exchange of fragments, as a loop of steps sees it. Most steps exchange nothing.

The exchange itself is the one of gradients, of `harness.engine.exchange` over packets or in virtual
time. It begins in the step that sends a fragment and ends in the step in which the fragment lands,
while workers continue. At most one is under way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import nan
from typing import Any, NamedTuple

from torch import Tensor

from controllers.base import Observation
from harness.clock import RankClock
from harness.engine.exchange.bucket_lanes import ExchangeError
from harness.engine.exchange.processor_waits import ProcessorWaits
from harness.engine.exchange.reduction import BucketBuffers, horizon_of
from harness.engine.exchange.stats import Exchanged, Release
from harness.engine.local_steps.reduction import OuterReduction
from harness.engine.local_steps.rounds import Due, Rounds
from harness.engine.training.buckets import Buckets
from harness.engine.training.state import require_alike
from harness.records.run_directory import Span

Fill = Callable[[int], None]  # writes a fragment's payload into its buckets
Patterns = Mapping[int, Tensor]  # [n], of the memory of some buckets, by its id


class Under(NamedTuple):
    """An exchange under way."""

    fragments: tuple[int, ...]
    handles: list[Any]  # of its buckets; what `wait` waits for


@dataclass
class LocalSums:
    """Sums over the steps since the last exchange ended, in emulated seconds."""

    steps: int = 0
    compute_s: float = 0.0
    backward_s: float = 0.0
    window_s: float = 0.0  # computing after a fragment was sent


@dataclass(kw_only=True)
class OuterState:
    """State of an `OuterExchange` in a checkpoint."""

    round: tuple[int, int, int]  # number, first step, steps between two exchanges
    seen: Observation | None
    since: LocalSums
    waited_s: float
    density: float
    waited_until_s: float
    took: Exchanged | None
    under: list[int]  # fragments
    buckets: list[Tensor]  # means of these fragments


@dataclass
class OuterExchange:
    """A `harness.engine.training.train.Exchanging` of local steps.

    `laid` is the memory of each fragment's buckets. `landed` are the fragments whose means are in
    their buckets, until the next step. A controller sees an exchange with the computation of all
    steps since the last one.
    """

    exchange: Any  # of gradients: begin, submit, finish, observe
    clock: RankClock
    rounds: Rounds
    laid: Sequence[Sequence[Buckets]]
    landed: tuple[int, ...] = field(default=(), init=False)
    seen: Observation | None = field(default=None, init=False)  # what controllers saw last
    count: int = field(default=0, init=False)  # exchanges that have ended
    waited_until: float = field(default=0.0, init=False)  # on the clock, at a rest
    _step: int = field(default=0, init=False)
    _due: Due = field(default=Due(), init=False)
    _round: tuple[int, int] = field(default=(0, 0), init=False)  # its number and steps
    _release: Release | None = field(default=None, init=False)
    _begin: float = field(default=0.0, init=False)
    _backward: float = field(default=0.0, init=False)
    _computed: float = field(default=0.0, init=False)
    _late_s: float = field(default=0.0, init=False)
    _waited_s: float = field(default=0.0, init=False)
    _under: Under | None = field(default=None, init=False)
    _took: Exchanged | None = field(default=None, init=False)  # of what has come, not landed
    _since: LocalSums = field(default_factory=LocalSums, init=False)

    def __post_init__(self) -> None:
        tensors = [sum(map(len, map(_names, each))) for each in self.laid]
        self._first_buckets = [0, *accumulate(tensors)]  # of which there are not more

    @property
    def reduction(self) -> OuterReduction:
        return self.exchange.reduction  # type: ignore[no-any-return]

    @property
    def workers(self) -> Any:
        return self.exchange.workers

    @property
    def _waits(self) -> ProcessorWaits | None:
        return self.workers.processor_waits  # type: ignore[no-any-return]

    def at(self, step: int) -> None:
        """Note that the next step is `step`."""
        self._step = step

    def begin(self, release: Release | None) -> None:
        self._due, self.landed = self.rounds.due(self._step), ()
        self._round = self.rounds.number, self.rounds.steps
        self._begin = self._backward = self.clock.now()
        self._release = release
        if self._under and self._waits is not None:
            self._waits.handed_over(is_sending=True)
        if sends := self._due.sends:
            self._open(sends)
            self.exchange.begin(release)

    def begin_backward(self) -> None:
        self._backward = self.clock.now()
        if self._due.sends:
            self.exchange.begin_backward()

    def submit(self, fill: Fill, patterns: Patterns = {}) -> None:  # noqa: B006  read only
        """Send due fragments after a step, from `fill` or `patterns`; wait for those that land."""
        if self._waits is not None:
            self._waits.handed_over(is_sending=bool(self._under))
        if sends := self._due.sends:
            self._under = Under(sends, self._send(sends, fill, patterns))
        now = self.clock.now()
        self._computed = self._release(1.0) if self._release else now
        self._late_s = max(0.0, now - self._computed)
        if not (sends and self._due.lands):  # else the exchange keeps the pace
            self.clock.sleep_until(self._computed)
        if self._due.lands:
            self._wait()
            assert self._under is not None and self._under.fragments == self._due.lands
            self.landed, self._under = self._due.lands, None

    def _open(self, sends: Sequence[int]) -> None:
        """Open the exchange of the fragments `sends`."""
        reduction = self.reduction
        reduction.dense, reduction.round = self._due.dense, self.rounds.number
        reduction.first_bucket = self._first_buckets[sends[0]]
        first, *rest = [name for laid in self._memory(sends) for name in laid.names]
        self.exchange.shares = {first: 1.0, **dict.fromkeys(rest, 0.0)}

    def _send(self, sends: Sequence[int], fill: Fill, patterns: Patterns) -> list[Any]:
        """Fill the fragments `sends` and submit them. Return handles to wait for."""
        for each in sends:
            fill(each)
        memory = [each for fragment in sends for each in self.laid[fragment]]
        pairs = [pair for each in memory for pair in self._cut(each, patterns)]
        last = len(pairs) - 1
        return [
            self.exchange.submit(laid, last=number == last, pattern=pattern)
            for number, (laid, pattern) in enumerate(pairs)
        ]

    def _cut(self, memory: Buckets, patterns: Patterns) -> Iterator[tuple[BucketBuffers, Any]]:
        """Yield the buckets of a round, each with its part of a pattern, or None."""
        buckets, pattern = memory.at(self.rounds.number), patterns.get(id(memory))
        sizes, none = [laid.buffer.numel() for laid in buckets], [None] * len(buckets)
        return zip(buckets, none if pattern is None else pattern.split(sizes), strict=True)

    def finish(self) -> Exchanged:
        """End the step. Return the exchange that ended in it, or the step without one."""
        if not self.landed:
            return self._alone()
        took, self._took = self._took or self._ended(), None
        if self._due.sends:
            return took
        return replace(
            took,
            compute_end=self._computed,
            backward_s=self._computed - self._backward_begin(),
            late_s=self._late_s,
            overlap_window_s=0.0,
            exposed_s=self._waited_s,
        )

    def _ended(self) -> Exchanged:
        """Return the finished exchange. A dense one sent all, whatever a controller asks."""
        took: Exchanged = self.exchange.finish()
        return replace(took, density=1.0) if self.reduction.dense else took

    def observe(self, seen: Observation) -> None:
        """Record a finished step, `seen`, and begin the next round if one is due.

        Controllers only see steps in which an exchange has ended. They get that step's record with
        the computation of all steps since the previous exchange.
        """
        since, self._step = self._since, seen.step + 1
        since.steps += 1
        since.compute_s += seen.compute_s
        since.backward_s += seen.backward_s
        if not self._due.sends and (self._under or self.landed):
            since.window_s += seen.compute_s
        if self.landed:
            self.see(
                replace(
                    seen,
                    step=self.count,
                    compute_s=since.compute_s,
                    backward_s=since.backward_s,
                    overlap_window_s=since.window_s,
                    local_steps=since.steps,
                )
            )
            self._since, self._waited_s = LocalSums(), 0.0
        if self._due.ends:
            self.rounds.begin(self._step, self._horizon())

    def _horizon(self) -> int | None:
        """Return the steps between the next round's exchanges, agreed by all workers, if any.

        None means the configured steps. Workers that agree on the smallest density agree on the
        largest horizon, since both are the answer of the worker in the worst situation.
        """
        reduction = self.reduction
        if self.seen is None or not reduction.controller.chooses_horizon:
            return None
        steps = horizon_of(reduction.controller, self.seen)
        if reduction.agree == "min":
            return -round(self.exchange.agree(-steps, "min"))
        return round(self.exchange.agree(steps, "mean"))

    def see(self, seen: Observation) -> None:
        """Show the controllers `seen` of the exchange that ended last."""
        self.seen, self.count = seen, seen.step + 1
        self.exchange.observe(seen)

    def round(self) -> dict[str, int]:
        """Return columns of the step's row: `harness.records.run_directory.LocalRound`."""
        fragment = self.landed[0] if len(self.landed) == 1 else -1
        number, horizon = self._round
        return {"round": number, "horizon": horizon, "fragment": fragment}

    def settle(self) -> None:
        """Wait for pending exchanges before the clock stops, so that they are not free."""
        if self._under is not None and self._took is None:
            self._wait()
            self._took = self._ended()
            self.waited_until = self.clock.now()

    def pull(self, begin: float) -> float:
        """Return when a step begins: at `begin`, or when the wait of a pause was over."""
        return max(begin, self.waited_until)

    def spans(self) -> list[Span]:
        """Return the spans of the last step, ordered by begin; in virtual time."""
        rank, per_s = self.workers.rank, 1 / self.clock.dilation
        step = self._step - 1
        theirs = self.exchange.spans() if self.landed else []
        if self.landed and self._due.sends:
            return [each._replace(step=step) for each in theirs]
        parts = ("forward", self._begin, self._backward_begin()), (
            "backward", self._backward_begin(), self._computed)  # fmt: skip
        own = [Span(step, rank, kind, -1, at * per_s, end * per_s) for kind, at, end in parts]
        others = [e._replace(step=step) for e in theirs if e.kind not in ("forward", "backward")]
        return sorted([*own, *others], key=lambda span: (span.start_s, span.bucket))

    def close(self) -> None:
        self.exchange.close()

    def state(self) -> OuterState:
        """Return the settled state between two steps; means not landed yet are in the buckets."""
        fragments = self._under.fragments if self._under else ()
        return OuterState(
            round=(self.rounds.number, self.rounds.first, self.rounds.steps_apart),
            seen=self.seen,
            since=replace(self._since),
            waited_s=self._waited_s,
            density=self.reduction.density,
            waited_until_s=self.waited_until / self.clock.dilation,
            took=self._took,
            under=list(fragments),
            buckets=[laid.buffer for laid in self._memory(fragments)],
        )

    def load_state(self, state: OuterState, step: int) -> None:
        """Continue from `state` before `step`; BadCheckpoint for means of another shape or type."""
        self._step = step
        self.rounds.number, self.rounds.first, self.rounds.steps_apart = state.round
        if state.seen:
            self.see(state.seen)
        self._since, self._waited_s = state.since, state.waited_s
        self.reduction.density = state.density
        self.clock.sleep_until(state.waited_until_s * self.clock.dilation)
        if state.under:
            self._under, self._took = Under((*state.under,), []), state.took
            buckets = self._memory(state.under)
            for laid, mean in zip(buckets, state.buckets, strict=True):
                require_alike(mean, laid.buffer, "outer.buckets")
                laid.buffer.copy_(mean)

    def _memory(self, fragments: Sequence[int]) -> list[BucketBuffers]:
        return [laid for each in fragments for memory in self.laid[each] for laid in memory.laid]

    def _wait(self) -> None:
        assert self._under is not None
        begin = self.clock.now()
        for handle in self._under.handles:
            try:
                handle.wait()
            except RuntimeError as error:
                cause = self.exchange.error or error
                raise ExchangeError(str(cause)) from cause
        self._waited_s += self.clock.now() - begin

    def _backward_begin(self) -> float:
        return self._release(0.0) if self._release else self._backward

    def _alone(self) -> Exchanged:
        """Return a step that ends no exchange. It has no density, since it sends nothing."""
        return Exchanged(
            compute_end=self._computed,
            backward_s=self._computed - self._backward_begin(),
            late_s=self._late_s,
            overlap_window_s=0.0,
            compress_s=0.0,
            comm_s=0.0,
            exposed_s=0.0,
            sent_bytes=0,
            received_bytes=0,
            dense_bytes=0,
            density=nan,
        )


def _names(memory: Buckets) -> list[str]:
    return [name for laid in memory.laid for name in laid.names]
