"""The training loop of one rank: gradients, exchange, update, records; evaluation off the clock."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controllers.base import Controller, Observation
from harness.clock import Clock
from harness.crossing import Crossing
from harness.exchange.thread import Exchange, Exchanged
from harness.records import Evaluation, Step, Table
from harness.training.pace import Pace
from harness.training.stops import Stops

UNSETTLED_STEPS = 2  # of a run: caches fill
OVERRUN_SHARE = 0.01  # of its step: a bucket later than that was not paced


class Gradients(Protocol):
    """Where a rank's gradients come from: a model on data, or sizes alone."""

    samples: int  # per step at this rank

    def compute(self, step: int) -> float:
        """Hand every bucket of `step` to the exchange, wait for the means, return the loss."""
        ...

    def update(self, step: int) -> None:
        """Optimizer step with the mean gradients."""
        ...

    def evaluate(self) -> dict[str, float]:
        """Metrics on the test set, equal on every rank; empty when there is nothing to evaluate."""
        ...


Meet = Callable[[float], float]  # waits for all ranks; the least of what they bring
Save = Callable[[int, Observation], None]  # write a checkpoint of so many steps, the last as seen


def no_checkpoint(done: int, seen: Observation) -> None:
    """Where there is nothing to go on with."""


@dataclass
class Loop:
    """One rank's run from step `first` to its end.

    Ranks `meet` whenever the clock stops, at the time of the first that arrives; it runs again
    when all are back, and each goes on at its own time, as far from the others as it was. `save`
    is called by all.
    """

    rank: int
    first: int
    stops: Stops
    run_dir: Path
    gradients: Gradients
    exchange: Exchange
    pace: Pace
    clock: Clock
    meet: Meet
    save: Save
    seat: int = 0  # among the ranks of its machine; the first keeps their clock
    seats: int = 1  # of its machine
    crossing: Callable[[], Crossing] = Crossing  # of cuts of the model, since the last call

    def __post_init__(self) -> None:
        self._rows = Table(self.run_dir, "steps.csv")
        self._evaluations = Table(self.run_dir, "evaluations.csv")
        self.done = self.first  # steps
        self.aside_bytes = [0, 0]  # sent and received by a pipeline while the clock stood still

    def run(self) -> int:
        """Train; returns how many steps overran their pace."""
        overruns = 0
        begin = self._start()
        for step in range(self.first, self.stops.steps):
            self.exchange.begin(self.pace.release(begin))
            loss = self.gradients.compute(step)
            took = self.exchange.finish()
            end = self.clock.now()
            crossed = self.crossing()
            self._record(step, loss, begin, end, took, crossed)
            overrun = took.late_s + crossed.late_s > OVERRUN_SHARE * (end - begin)
            overruns += overrun and step >= self.first + UNSETTLED_STEPS
            self.gradients.update(step)  # counted in the next step, as is its batch
            self.done, begin = step + 1, end
            if self._stop_clock_for_the_rest(self.done):
                break
        return overruns

    def _start(self) -> float:
        self.meet(0.0)
        if self.seat == 0:
            self.clock.call_ready()
        self.clock.wait_running()
        return self.clock.now()

    def _record(
        self, step: int, loss: float, begin: float, end: float, took: Exchanged, crossed: Crossing
    ) -> None:
        workers, controller = self.exchange.workers.size, self.exchange.reduction.controller
        seen = observed(step, begin, end, took, workers, self.clock.dilation)
        row = recorded(seen, self.rank, loss, self.gradients.samples, controller)
        self._rows.append(crossed.added_to(row, self.clock.dilation))
        self.exchange.observe(seen)
        self._seen = seen

    def _stop_clock_for_the_rest(self, done: int) -> bool:
        """Evaluate and save where `done` steps call for it, the clock stopped; whether to end."""
        evaluate = self.stops.evaluates(done)
        if not (evaluate or self.stops.saves(done, last=False)):
            return False
        arrived = self.clock.now()
        first = self.meet(arrived)
        if self.seat == 0:
            self.clock.pause(first)
        last = self.stops.ends(done, self._evaluate(done, arrived) if evaluate else {})
        if self.stops.saves(done, last):
            self.save(done, self._seen)
        crossed = self.crossing()
        self.aside_bytes[0] += crossed.sent_bytes
        self.aside_bytes[1] += crossed.received_bytes
        self.meet(arrived)
        if not last:
            self._go_on(arrived)
        return last

    def _go_on(self, arrived: float) -> None:
        self.clock.report_back(self.seat)
        if self.seat == 0:
            self.clock.resume_with(self.seats)
        self.clock.wait_until(arrived)

    def _evaluate(self, done: int, at: float) -> dict[str, float]:
        metrics = self.gradients.evaluate()
        if self.rank == 0 and metrics:
            time_s = at / self.clock.dilation
            rows = [Evaluation(done, time_s, name, value) for name, value in metrics.items()]
            self._evaluations.append(*rows)
        return metrics


def observed(
    step: int, begin: float, end: float, took: Exchanged, workers: int, dilation: float
) -> Observation:
    """What a controller sees of a step from `begin` to `end` on a clock of real seconds."""
    emulated = 1 / dilation
    return Observation(
        step=step,
        time_s=end * emulated,
        density=took.density,
        delay_s=took.comm_s * emulated,
        compress_s=took.compress_s * emulated,
        compute_s=(took.compute_end - begin) * emulated,
        backward_s=took.backward_s * emulated,
        hiding_s=took.hiding_s * emulated,
        exposed_s=took.exposed_s * emulated,
        sent_bytes=took.sent_bytes,
        received_bytes=took.received_bytes,
        dense_bytes=took.dense_bytes,
        workers=workers,
        **took.norms._asdict(),
        occupancy=took.occupancy,
    )


def recorded(
    seen: Observation, rank: int, loss: float, samples: int, controller: Controller
) -> Step:
    """The row of steps.csv that tells what `rank` saw of a step."""
    return Step(
        step=seen.step,
        rank=rank,
        time_s=seen.time_s,
        loss=loss,
        samples=samples,
        before_s=seen.compute_s - seen.hiding_s,
        compute_s=seen.compute_s,
        compress_s=seen.compress_s,
        comm_s=seen.delay_s,
        exposed_s=seen.exposed_s,
        sent_bytes=seen.sent_bytes,
        received_bytes=seen.received_bytes,
        dense_bytes=seen.dense_bytes,
        density=seen.density,
        controller=json.dumps(controller.state()),
        occupancy=seen.occupancy,
    )
