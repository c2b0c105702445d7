"""The training loop of one rank: compute, exchange, update, and record each step."""

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

UNSETTLED_STEPS = 2  # ignored at the begin of a run, while caches fill
OVERRUN_SHARE = 0.01  # share of a step's time; more lateness is an overrun


def at_once(time: float) -> float:
    """Return `time` unchanged: the default of hooks that add no delay."""
    return time


@dataclass
class Loop:
    """The training loop of one rank. It runs `steps`, after `first` steps of an earlier run.

    `rest(done, last_observation)` runs after every step. It returns True to end the run, or None if
    nothing was scheduled. `told(time)` runs when a step has ended.
    """

    rank: int
    first: int
    steps: Iterable[int]
    table: Table
    gradients: Gradients
    exchange: Exchanging
    pace: Pace
    clock: RankClock
    begin: Callable[[], float]  # wait for all ranks; returns the time of the first step
    rest: Callable[[int, Observation], bool | None]
    pull: Callable[[float], float] = at_once  # fetch a step's inputs; returns the time they arrive
    stage_traffic: Callable[[], StageTraffic] = (
        StageTraffic  # of cuts of the model, since the last call
    )
    round: Callable[[], Mapping[str, Any]] = dict  # extra columns of local steps
    told: Callable[[float], float] = at_once  # called at a step's end; returns the next one's begin
    alike: int = 1  # number of ranks it represents, from `rank` on
    waits: ProcessorWaits | None = None  # of this process, over packets
    overruns: int = field(default=0, init=False)  # steps that took longer than their pace
    aside_bytes: list[int] = field(default_factory=lambda: [0, 0], init=False)  # outside of steps
    seen: Observation = field(init=False)  # the last step

    def __post_init__(self) -> None:
        self.done = self.first  # steps

    @property
    def loops(self) -> "list[Loop]":
        """The loops of all threads of the rank: here this one."""
        return [self]

    def run(self) -> int:
        """Train from the current step on. Return how many steps overran their pace."""
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
        """Append a row for one step to the table. `late_s` and `waited_s` are real seconds."""
        self.seen, controller = seen, self.exchange.reduction.controller
        row = recorded(seen, self.rank, loss, self.gradients.course.samples, controller)
        row = crossed.added_to(row, self.clock.dilation)
        emulated = 1 / self.clock.dilation
        row = replace(row, late_s=late_s * emulated, waited_s=waited_s * emulated)
        if of_round := self.round():
            row = replace(row, **of_round)
        self.table.append_alike(row, range(self.rank, self.rank + self.alike))

    def close(self) -> None:
        """End the threads of the exchange, and then those of the gradients."""
        self.exchange.close()
        self.gradients.close()

    def _rests(self) -> bool:
        """Evaluate or save if scheduled. Return True if the run ends.

        Activation traffic during a rest is counted separately, because it belongs to no step.
        """
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
    """Return the row of steps.csv for one step, as `rank` observed it."""
    return Step(
        **columns.values(seen, Observation),
        rank=rank,
        loss=loss,
        samples=samples,
        compute_before_first_bucket_s=seen.compute_s - seen.overlap_window_s,
        controller=json.dumps(state_of(controller), default=float),
    )
