"""The training loop of all workers at once, on a clock that is computed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from controllers.base import Observation
from harness.crossing import Crossing
from harness.exchange.thread import Exchanged
from harness.records import Evaluation, Table
from harness.simulate.sampler import Sampler
from harness.simulate.saving import Saver
from harness.simulate.side import Computed, Laid, Side
from harness.simulate.timeline import Timeline
from harness.simulate.turns import Turns
from harness.training.pace import Paced
from harness.training.stops import Stops
from harness.training.train import observed, recorded


class WorkerError(RuntimeError):
    """A worker failed; its cause is the error, `rank` the worker."""

    def __init__(self, rank: int, cause: BaseException) -> None:
        super().__init__(f"rank {rank}: {type(cause).__name__}: {cause}")
        self.rank, self.__cause__ = rank, cause


class Gradients(Protocol):
    """Where every worker's gradients come from."""

    samples: int  # of a worker's step
    same: bool  # whether all workers got the same means so far

    def compute(self, rank: int) -> Computed:
        """Fill this worker's buckets; real seconds."""
        ...

    def buckets(self, rank: int) -> list[Laid]: ...

    def update(self, step: int) -> float:
        """Optimizer step with the means; real seconds."""
        ...

    def evaluate(self) -> dict[str, float]: ...

    def shared(self) -> dict[str, Any]: ...

    def own(self, rank: int) -> dict[str, Any]: ...


@dataclass
class Loop:
    """A whole run; `tell` is called after every step.

    A side for every worker, or one that stands for all.
    """

    workers: int
    first: int
    stops: Stops
    run_dir: Path
    gradients: Gradients
    sides: list[Side]
    pace: Paced | None  # None: measured; in real seconds, like what is measured
    dilation: float
    sampler: Sampler
    timeline: Timeline
    saver: Saver | None  # None: there is nothing to go on with
    tell: Callable[[], None]
    crossing: Callable[[], Crossing] = Crossing  # of cuts of the model, of a single worker
    done: int = field(default=0, init=False)  # steps
    _updated_s: float = field(default=0.0, init=False)  # what the last update took

    def run(self, turns: Turns) -> None:
        """Train to the end. WorkerError when a worker fails."""
        rows, evaluations = (Table(self.run_dir, f"{n}.csv") for n in ("steps", "evaluations"))
        for step in range(self.first, self.stops.steps):
            begins = [side.end_s for side in self.sides]
            self._computed = [self._compute(rank) for rank in range(len(self.sides))]
            self._step, self._took = step, [None] * len(self.sides)
            turns.round()
            if turns.failure is not None:
                raise WorkerError(*turns.failure)
            self._record(step, begins, rows)
            self.timeline.add([side.spans() for side in self.sides])
            self._updated_s = self.gradients.update(step) / self.dilation
            self.sampler.up_to(max(side.end_s for side in self.sides))
            self.done = step + 1
            over = self._stop_for_the_rest(self.done, evaluations)
            self.tell()
            if over:
                break

    def exchange(self, rank: int) -> None:
        """What a worker's thread does in every round."""
        buckets = self.gradients.buckets(rank)
        took = self.sides[rank].exchange(self._step, self._computed[rank], buckets)
        self._took[rank] = took

    def _compute(self, rank: int) -> Computed:
        try:
            computed = self.gradients.compute(rank)
        except Exception as error:
            raise WorkerError(rank, error) from error
        if self.pace is not None:
            times = self.pace.forward_s, self.pace.backward_s
        else:
            times = computed.forward_s, computed.backward_s
        forward_s, backward_s = (each / self.dilation for each in times)
        if self.pace is None:
            forward_s += self._updated_s
        return Computed(computed.loss, forward_s, backward_s)

    def _record(self, step: int, begins: list[float], table: Table) -> None:
        self._seen, rows = [], []
        for rank, side in enumerate(self.sides):
            took = self._took[rank]
            assert took is not None
            seen = observed(step, begins[rank], side.end_s, took, self.workers, dilation=1.0)
            side.observe(seen)
            self._seen.append(seen)
            loss, controller = self._computed[rank].loss, side.reduction.controller
            row = recorded(seen, rank, loss, self.gradients.samples, controller)
            rows.append(self.crossing().added_to(row, dilation=1.0))
        if len(rows) < self.workers:
            table.append_alike(rows[0], range(self.workers))
        else:
            table.append(*rows)

    def _stop_for_the_rest(self, done: int, evaluations: Table) -> bool:
        """Evaluate and save where `done` steps call for it, in no emulated time; whether to end."""
        time_s, found = self.sides[0].end_s, {}
        if self.stops.evaluates(done):
            found = self.gradients.evaluate()
            evaluations.append(*(Evaluation(done, time_s, *each) for each in found.items()))
        last = self.stops.ends(done, found)
        if self.saver is not None and self.stops.saves(done, last):
            owns = [self.gradients.own(rank) for rank in range(len(self.sides))]
            shared = self.gradients.shared()
            self.saver.save(done, time_s, shared, owns, self.sides, self._seen)
        return last

    _step: int = field(default=0, init=False)
    _computed: list[Computed] = field(default_factory=list, init=False)
    _took: list[Exchanged | None] = field(default_factory=list, init=False)
    _seen: list[Observation] = field(default_factory=list, init=False)
