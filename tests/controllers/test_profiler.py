"""COVAP's distributed profiler: end-aligned collectives of workers with clocks of their own."""

from typing import Any, NamedTuple

import pytest

from controllers.covap import COVAP
from harness.engine.exchange.feedback import NoFeedback
from harness.engine.exchange.reduction import Reduction
from tests.compressors.reductions import build
from tests.compressors.threads import ThreadWorkers, together
from tests.controllers.observations import seen

CLOCK_S = (0.0, 1234.5, -0.75)  # what each worker's clock is ahead
BACKWARD_S = (0.20, 0.21, 0.22)


class Collective(NamedTuple):
    """In real seconds: when each worker began it, and when it ended for all."""

    begins: tuple[float, float, float]
    end: float


TABLE = (  # of VGG-19's size: 842 ms in all, when the last worker begins each
    Collective((0.010, 0.000, 0.020), 0.036),  # 16
    Collective((0.040, 0.080, 0.036), 0.180),  # 100
    Collective((0.181, 0.181, 0.290), 0.893),  # 603
    Collective((0.900, 0.930, 0.893), 0.970),  # 40
    Collective((0.970, 0.971, 0.970), 1.020),  # 49
    Collective((1.020, 1.026, 1.024), 1.060),  # 34
)


class Agreeing(ThreadWorkers):
    def agree(self, value: float, how: str) -> float:
        assert how == "mean"
        return sum(self.meeting.exchange(self.rank, value)) / self.world_size

    def all_reduce_min(self, values: list[float]) -> list[float]:
        brought = self.meeting.exchange(self.rank, values)
        return [min(column) for column in zip(*brought, strict=True)]


def profiled(workers: ThreadWorkers) -> tuple[float, list[float], dict[str, float]]:
    """Sum of what this worker's clock shows, agreed densities, and what its controller tells."""
    rank = workers.rank
    own = [(one.begins[rank] + CLOCK_S[rank], one.end + CLOCK_S[rank]) for one in TABLE]
    durations_s = [end - begin for begin, end in own]
    controller = COVAP(warm_steps=1)
    group: Any = Agreeing(rank, workers.meeting)
    reduction = Reduction(build("covap"), controller, "mean", NoFeedback(), group)
    densities = []
    for step in range(5):
        reduction.open(None, None) if step == 0 else reduction.open(
            seen(
                step - 1,
                density=densities[-1],
                comm_s=sum(durations_s),
                backward_s=BACKWARD_S[rank],
            ),
            durations_s,
        )
        densities.append(reduction.density)
    return sum(durations_s), densities, controller.state()


def test_workers_find_the_same_communication_time_however_long_they_waited() -> None:
    for own_s, densities, state in together(3, profiled):
        assert own_s > 1.05 * 0.842
        assert state["comm_s"] == pytest.approx(0.842)
        assert densities[:2] == [1.0, 1.0]
        assert densities[2] == pytest.approx(sum(BACKWARD_S) / 3 / 0.842)
        assert densities[3:] == pytest.approx([0.25, 0.25])
        assert state["interval"] == 4
