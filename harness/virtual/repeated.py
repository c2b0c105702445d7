"""A rank that trains nothing: it repeats another run's training on a new network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.config.run import Run
from harness.engine.exchange.stats import Exchanged
from harness.engine.local_steps.build import as_exchanged, in_rounds
from harness.engine.local_steps.exchange import Fill, OuterExchange, Patterns
from harness.engine.local_steps.rounds import Rounds
from harness.engine.pipeline.traffic_meter import TrafficMeter
from harness.engine.training.build import loop_of, pace_of
from harness.engine.training.course import Course, without_data
from harness.engine.training.gradients import Gradients
from harness.engine.training.rank_context import RankContext
from harness.engine.training.train import Loop
from harness.virtual.curve import Curve
from harness.virtual.exchange import VirtualExchange


@dataclass
class Decided:
    """Stand-in for a run's controller and reduction. It returns the recorded controller state."""

    told: dict[str, Any] = field(default_factory=dict)
    density: float = 1.0  # of a step that exchanges nothing, until its row says
    chooses_horizon: bool = False
    dense: bool = False  # the recorded rows have the density sent

    @property
    def controller(self) -> "Decided":
        return self

    def state(self) -> dict[str, Any]:
        return self.told


@dataclass
class Recorded(Gradients):
    """Gradients that repeat the record of `curve` at `rank`, with exchanges timed anew."""

    course: Course
    exchange: Any
    curve: Curve
    rank: int
    decided: Decided
    _done: int = field(default=0, init=False)

    def compute(self, step: int) -> float:
        self._done, row = step + 1, self.curve.rows[step, self.rank]
        self.decided.told = json.loads(row.controller)
        self.pass_on(step)
        return row.loss

    def pass_on(self, step: int) -> None:
        exchange: VirtualExchange = self.exchange
        exchange.repeat(self.curve.repeated(step, step, self.rank)).wait()

    def evaluate(self) -> dict[str, float]:
        return dict(self.curve.evaluations.get(self._done, {}))


@dataclass
class RecordedLocal(Recorded):
    """Recorded training with local steps, whose exchange decides when it communicates."""

    def pass_on(self, step: int) -> None:
        exchange: OuterExchange = self.exchange
        exchange.submit(lambda fragment: None)


@dataclass(kw_only=True)
class RecordedRounds(OuterExchange):
    """Outer exchange of `rank` that repeats the recorded rounds of `curve`.

    Each message is sent again with its recorded size, on the new network. It takes its time anew,
    and no tensor is exchanged.
    """

    curve: Curve
    rank: int
    _sent: int = field(default=0, init=False)  # exchanges

    def finish(self) -> Exchanged:
        return replace(super().finish(), **self.curve.rows[self._step, self.rank].exchanged())

    def _open(self, sends: Sequence[int]) -> None:
        return None

    def _send(self, sends: Sequence[int], fill: Fill, patterns: Patterns) -> list[Any]:
        done = self.curve.repeated(self._sent, self._step, self.rank)
        self._sent += 1
        return [self.exchange.repeat(done)]


def repeated(run: Run, context: RankContext, curve: Curve) -> Loop:
    """Return the training loop of a rank that repeats `curve` on the network of `run`."""
    course = without_data(run.accumulate * run.batch_size, curve.steps)
    decided, rank = Decided(), context.rank
    layout: Any = run.parallel
    if not layout.is_local:
        exchange: Any = _exchange(run, context, decided)
        return _loop(run, context, Recorded(course, exchange, curve, rank, decided))
    of_steps = _exchange(as_exchanged(run, layout), context, decided)
    exchange = RecordedRounds(
        of_steps, context.clock, Rounds(layout), laid=(), curve=curve, rank=rank
    )
    loop = _loop(run, context, RecordedLocal(course, exchange, curve, rank, decided))
    return in_rounds(loop, exchange)


def _loop(run: Run, context: RankContext, gradients: Gradients) -> Loop:
    return loop_of(run, context, gradients, pace_of(run, context.clock.dilation), TrafficMeter([]))


def _exchange(run: Run, context: RankContext, decided: Any) -> VirtualExchange:
    workers: Any = context.workers  # of virtual time
    return VirtualExchange(
        reduction=decided,
        workers=workers,
        clock=context.clock,
        after_backward=run.overlap == "after_backward",
        lanes=run.emulation.lanes(run.compressor(), is_emulated=True),
        shares={},
        charge=None,
    )
