"""How workers agree on a density, and what of the last exchange their controllers then see."""

from dataclasses import dataclass, field
from random import Random

import pytest

from controllers.base import Controller, Observation
from harness.engine.exchange.feedback import NoFeedback
from harness.engine.exchange.reduction import MOST_DURATIONS, Reduction
from tests.compressors.reductions import build
from tests.compressors.threads import ThreadWorkers, together
from tests.controllers.observations import seen


@dataclass
class Talking(ThreadWorkers):
    """Workers that also agree, and remember the sizes of their messages."""

    messages: list[int] = field(default_factory=list)

    def agree(self, value: float, how: str) -> float:
        self.messages.append(1)
        values = self.meeting.exchange(self.rank, value)
        return min(values) if how == "min" else sum(values) / len(values)

    def all_reduce_min(self, values: list[float]) -> list[float]:
        self.messages.append(len(values))
        brought = self.meeting.exchange(self.rank, values)
        return [min(column) for column in zip(*brought, strict=True)]


class Proposes(Controller):
    """The density of this worker; remembers what it saw."""

    def __init__(self, density: float) -> None:
        self._density = density
        self.seen: Observation | None = None

    def density(self, seen: Observation | None) -> float:
        self.seen = seen
        return self._density

    def state(self) -> dict[str, float]:
        return {}


class Same(Proposes):
    same_everywhere = True


def opened(durations, agree="min", kind=Proposes):
    """Per rank after an exchange of those `durations`: delay seen, density, sizes of messages."""

    def work(workers: ThreadWorkers):
        rank = workers.rank
        talking = Talking(rank, workers.meeting)
        controller = kind(0.1 if kind is Same else (rank + 1) / 10)
        reduction = Reduction(build("topk"), controller, agree, NoFeedback(), talking)
        reduction.open(seen(0, comm_s=sum(durations[rank])), durations[rank])
        assert controller.seen is not None
        return controller.seen.comm_s, reduction.density, talking.messages

    return together(len(durations), work)


def drawn(workers: int, collectives: int) -> list[list[float]]:
    draw = Random(collectives)
    return [[draw.expovariate(1.0) for _ in range(collectives)] for _ in range(workers)]


@pytest.mark.parametrize("collectives", [0, 1, 2, MOST_DURATIONS])
def test_the_delay_is_without_waiting_for_the_last_to_begin(collectives):
    durations = drawn(3, collectives)
    expected = sum(min(of_all) for of_all in zip(*durations, strict=True))
    for comm_s, _, _ in opened(durations):
        assert comm_s == pytest.approx(expected)


def test_a_straggler_does_not_read_as_congestion():
    """A transfer takes 1; worker 2 begins the first 5 late, worker 0 the second 3 late."""
    durations = [[1.0 + 5, 1.0], [1.0 + 5, 1.0 + 3], [1.0, 1.0 + 3]]
    assert [comm_s for comm_s, _, _ in opened(durations)] == [2, 2, 2]


@pytest.mark.parametrize(
    "collectives", [MOST_DURATIONS + 1, 2 * MOST_DURATIONS, 7 * MOST_DURATIONS - 3]
)
def test_many_collectives_are_told_in_groups(collectives):
    durations = drawn(2, collectives)
    finest = sum(min(of_all) for of_all in zip(*durations, strict=True))
    for comm_s, _, messages in opened(durations):
        assert finest <= comm_s <= min(sum(own) for own in durations)
        assert messages == [MOST_DURATIONS + 2, 1]


@pytest.mark.parametrize("agree, expected", [("min", 0.1), ("mean", 0.2)])
def test_workers_settle_on_one_density(agree, expected):
    for _, density, _ in opened(drawn(3, 4), agree):
        assert density == pytest.approx(expected)


def test_a_worker_that_decides_alone_sees_its_own_time_and_sends_nothing():
    durations = drawn(3, 4)
    for rank, (comm_s, density, messages) in enumerate(opened(durations, "local")):
        assert comm_s == sum(durations[rank])
        assert density == (rank + 1) / 10
        assert messages == []


def test_controllers_that_choose_the_same_anyway_send_nothing():
    assert [messages for _, _, messages in opened(drawn(2, 4), "min", Same)] == [[], []]


def test_workers_that_called_other_collectives_are_told_so():
    """All of them, instead of waiting for one another."""

    def work(workers: ThreadWorkers):
        talking = Talking(workers.rank, workers.meeting)
        reduction = Reduction(build("topk"), Proposes(0.1), "min", NoFeedback(), talking)
        with pytest.raises(RuntimeError, match=r"from 2 to 4 collectives .* at rank"):
            reduction.open(seen(0), [0.1] * (4 if workers.rank else 2))

    together(3, work)


def test_without_durations_the_delay_stays_as_it_was_seen():
    def work(workers: ThreadWorkers):
        controller = Proposes(0.1)
        talking = Talking(workers.rank, workers.meeting)
        Reduction(build("topk"), controller, "min", NoFeedback(), talking).open(seen(3, comm_s=0.7))
        return controller.seen.comm_s, talking.messages

    assert together(2, work) == [(0.7, [1]), (0.7, [1])]
