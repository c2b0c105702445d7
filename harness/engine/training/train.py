"""The training loop of one rank: gradients, exchange, update, records."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

from controllers.base import Controller, Observation
from harness.clock import RankClock
from harness.engine.exchange.processor_waits import ProcessorWaits
from harness.engine.exchange.reduction import state_of
from harness.engine.pipeline.stage_traffic import StageTraffic
from harness.engine.training.gradients import Gradients
from harness.engine.training.pace import Pace
from harness.engine.training.step import Exchanging, StepExchange
from harness.records import columns
from harness.records.run_directory import Step, Table

UNSETTLED_STEPS = 2  # of a run: caches fill
OVERRUN_SHARE = 0.01  # of its step: a bucket later than that was not paced


def at_once(time: float) -> float:
    """Go on at the time given: nothing is to be waited for, and nobody to be told."""
    return time


@dataclass
class Loop:
    """The training of one rank: its `steps`, before which it has done `first`.

    `rest` is after each of them, with what was seen last: whether the run ends there, or None where
    it does not stop. `told` is when a step has ended.
    """

    rank: int
    first: int
    steps: Iterable[int]
    table: Table
    gradients: Gradients
    exchange: Exchanging
    pace: Pace
    clock: RankClock
    begin: Callable[[], float]  # wait for all: when the first step begins
    rest: Callable[[int, Observation], bool | None]
    pull: Callable[[float], float] = at_once  # what a step needs from its begin: when it is there
    stage_traffic: Callable[[], StageTraffic] = (
        StageTraffic  # of cuts of the model, since the last call
    )
    round: Callable[[], Mapping[str, Any]] = dict  # of local steps: columns of the row
    told: Callable[[float], float] = at_once  # a step has ended then: when the next one begins
    alike: int = 1  # ranks from `rank` on that it stands for
    waits: ProcessorWaits | None = None  # of this process, over packets
    overruns: int = field(default=0, init=False)  # steps that took longer than their pace
    aside_bytes: list[int] = field(default_factory=lambda: [0, 0], init=False)  # in no step's row
    seen: Observation = field(init=False)  # the last step

    def __post_init__(self) -> None:
        self.done = self.first  # steps

    @property
    def loops(self) -> "list[Loop]":
        """Loops of all threads of the rank, of which it has one."""
        return [self]

    def run(self) -> int:
        """Train; returns how many steps overran their pace. Goes on where it was left."""
        exchanged, begin = StepExchange(self.exchange, self.clock), self.begin()
        for step in self.steps:
            began = self.pull(begin)
            exchanged.begin(began, self.pace.release(began))
            loss = self.gradients.compute(step)
            ended = exchanged.end(step)
            waited_s = nan if self.waits is None else self.waits.take_s()
            crossed = self.stage_traffic()
            late_s, took = ended.took.late_s + crossed.late_s, ended.end - began
            self._record(ended.seen, loss, crossed, late_s, waited_s)
            overrun = late_s > OVERRUN_SHARE * took
            self.overruns += overrun and step >= self.first + UNSETTLED_STEPS
            begin = self.told(ended.end)
            self.gradients.update(step)  # counted in the next step, as is its batch
            self.done += 1
            if self._rests():
                break
        return self.overruns

    def _record(
        self, seen: Observation, loss: float, crossed: StageTraffic, late_s: float, waited_s: float
    ) -> None:
        """Append a step to the table; `late_s` and `waited_s` are real seconds."""
        self.seen, controller = seen, self.exchange.reduction.controller
        row = recorded(seen, self.rank, loss, self.gradients.course.samples, controller)
        row = crossed.added_to(row, self.clock.dilation)
        emulated = 1 / self.clock.dilation
        row = replace(row, late_s=late_s * emulated, waited_s=waited_s * emulated)
        if of_round := self.round():
            row = replace(row, **of_round)
        self.table.append_alike(row, range(self.rank, self.rank + self.alike))

    def close(self) -> None:
        """End the threads of the exchange, and then of the gradients."""
        self.exchange.close()
        self.gradients.close()

    def _rests(self) -> bool:
        """Rest, and tell if the run ends; what crosses cuts meanwhile belongs to no step."""
        ends = self.rest(self.done, self.seen)
        if ends is not None:
            crossed = self.stage_traffic()
            self.aside_bytes[0] += crossed.activation_bytes
            self.aside_bytes[1] += crossed.received_bytes
            if self.waits is not None:
                self.waits.take_s()
        return bool(ends)


def recorded(
    seen: Observation, rank: int, loss: float, samples: int, controller: Controller
) -> Step:
    """The row of steps.csv that tells what `rank` saw of a step."""
    return Step(
        **columns.values(seen, Observation),
        rank=rank,
        loss=loss,
        samples=samples,
        compute_before_first_bucket_s=seen.compute_s - seen.overlap_window_s,
        controller=json.dumps(state_of(controller), default=float),
    )
