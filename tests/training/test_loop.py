"""The training loop: where the clock stops, and how ranks go on from there."""

import csv
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from controllers.fixed import Fixed
from harness.engine.exchange.stats import Exchanged
from harness.engine.training.pace import MeasuredPace
from harness.engine.training.rest import Rest, StopSchedule, no_checkpoint
from harness.engine.training.together import Machines
from harness.engine.training.train import Loop
from harness.records.run_directory import TABLES, Table

STEP_S = 1.0


@dataclass
class ScriptedClock:
    """Of one rank: a step takes STEP_S, and what the loop asks for is written down."""

    at: float = 0.0
    dilation: float = 2.0
    asked: list[tuple[str, float]] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    def call_ready(self) -> None: ...

    def wait_running(self) -> None: ...

    def pause(self, at: float) -> None:
        self.asked.append(("pause", at))

    def computing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def report_back(self, local_rank: int) -> None:
        self.asked.append(("back", local_rank))

    def resume_with(self, local_world_size: int) -> None:
        self.asked.append(("resume with", local_world_size))

    def wait_until(self, at: float) -> None:
        self.asked.append(("wait", at))


class OnClock:
    """An exchange and gradients that do nothing but let time go by."""

    course = SimpleNamespace(samples=1)
    workers = SimpleNamespace(world_size=2, shards=1)
    reduction = SimpleNamespace(controller=Fixed())

    def __init__(self, clock: ScriptedClock) -> None:
        self.clock = clock

    def begin(self, release: object) -> None: ...

    def compute(self, step: int) -> float:
        self.clock.at += STEP_S
        return 0.0

    def finish(self) -> Exchanged:
        at = self.clock.at
        return Exchanged(compute_end=at, backward_s=0.0, late_s=0.0, overlap_window_s=0.0,
                         compress_s=0.0, comm_s=0.0, exposed_s=0.0, sent_bytes=0, received_bytes=0,
                         dense_bytes=0, density=1.0)  # fmt: skip

    def observe(self, seen: object) -> None: ...

    def update(self, step: int) -> None: ...

    def evaluate(self) -> dict[str, float]:
        return {"accuracy": 0.5}


@pytest.mark.parametrize("other_s", [-0.3, 0.0, 0.3])
def test_a_stop_leaves_ranks_as_far_apart_as_they_were(tmp_path, other_s):
    clock = ScriptedClock()
    parts = OnClock(clock)
    arrivals = []

    def barrier_min(mine: float) -> float:
        arrivals.append(mine)
        return min(mine, mine + other_s)  # so much later the other came

    for name in TABLES:
        Table(tmp_path, name).header()
    stops = StopSchedule(steps=3, eval_every=2, checkpoint_every=None)
    together = Machines(clock, barrier_min, lambda mine: [mine])
    steps, evaluations = (Table(tmp_path, name) for name in ("steps.csv", "evaluations.csv"))
    rest = Rest(stops, 0, clock, together, parts.evaluate, no_checkpoint, evaluations)
    own = parts, parts, MeasuredPace(), clock, together.begin, rest
    loop = Loop(0, 0, range(stops.steps), steps, *own)
    assert loop.run() == 0
    arrived = 2 * STEP_S
    assert arrivals == [0.0, arrived, arrived, 3 * STEP_S, 3 * STEP_S]
    first = arrived + min(0.0, other_s)
    assert clock.asked[:3] == [("pause", first), ("back", 0), ("resume with", 1)]
    assert clock.asked[3] == ("wait", arrived)
    assert [name for name, _ in clock.asked[4:]] == ["pause"]  # for good
    with (tmp_path / "evaluations.csv").open() as file:
        seen = list(csv.DictReader(file))
    assert [row["time_s"] for row in seen] == ["1.0", "1.5"]  # rank 0's own, emulated
