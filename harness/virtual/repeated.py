"""A rank that trains nothing: it goes through what another run has trained, on a network anew."""

import json
from dataclasses import dataclass, field
from typing import Any

from harness.config.run import Run
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
    """The controller of a run, as far as it recorded its state; and all that a loop asks of it."""

    told: dict[str, Any] = field(default_factory=dict)

    @property
    def controller(self) -> "Decided":
        return self

    def state(self) -> dict[str, Any]:
        return self.told


@dataclass
class Recorded(Gradients):
    """Losses and metrics of `curve` at `rank`; what it exchanged takes its time again."""

    course: Course
    exchange: VirtualExchange
    curve: Curve
    rank: int
    decided: Decided
    _done: int = field(default=0, init=False)

    def compute(self, step: int) -> float:
        self._done, row = step + 1, self.curve.rows[step, self.rank]
        self.decided.told = json.loads(row.controller)
        self.exchange.repeat(self.curve.repeated(step, self.rank))
        return row.loss

    def evaluate(self) -> dict[str, float]:
        return dict(self.curve.evaluations.get(self._done, {}))


def repeated(run: Run, context: RankContext, curve: Curve) -> Loop:
    """The loop of a rank of `run`, whose training is that of `curve`."""
    decided: Any = Decided()
    workers: Any = context.workers  # of virtual time
    exchange = VirtualExchange(
        reduction=decided,
        workers=workers,
        clock=context.clock,
        after_backward=run.overlap == "after_backward",
        lanes=run.emulation.lanes(run.compressor(), is_emulated=True),
        shares={},
        charge=None,
    )
    course = without_data(run.accumulate * run.batch_size, curve.steps)
    gradients = Recorded(course, exchange, curve, context.rank, decided)
    return loop_of(run, context, gradients, pace_of(run, context.clock.dilation), TrafficMeter([]))
