"""The emulated device of a stage: one thing at a time, each in its time, and where it went."""

import pytest

from harness.clock import Clock
from harness.engine.pipeline.device import Device, StageTimes
from harness.engine.pipeline.engine import SCHEDULES

COSTS = StageTimes(2.0, 3.0)


class Time(Clock):
    """A clock that goes on only where it is told to, or slept on."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def sleep_until(self, at: float) -> None:
        self.now_s = max(self.now_s, at)


@pytest.fixture
def time() -> Time:
    return Time()


def spent(stage: Device) -> tuple[float, float, float]:
    return stage.waited_s, stage.compress_s, stage.late_s


def _begun(time: Time, costs: StageTimes | None) -> Device:
    found = Device(time, costs)
    assert found.release(0.0) is None
    return found


def _work(stage: Device, name: str, **message: float) -> None:
    stage.begin(**message)
    stage.end(name)


@pytest.mark.parametrize(("real_s", "late_s", "ends_s"), [(0.5, 0, 2.0), (2.75, 0.75, 2.75)])
def test_it_ends_at_its_time_or_is_late_by_what_it_took_longer(time, real_s, late_s, ends_s):
    stage = _begun(time, COSTS)
    stage.rest()
    stage.begin()
    time.now_s += real_s
    stage.end("forward")
    assert (time.now_s, spent(stage)) == (ends_s, (0, 0, late_s))


def test_it_begins_when_its_message_is_there_and_tells_waiting_from_decoding(time):
    stage = _begun(time, COSTS)
    time.now_s = 7.0
    _work(stage, "backward", received_s=5.0, decoded_s=6.0)
    assert (time.now_s, spent(stage)) == (9.0, (5, 1, 0))


def test_decoding_while_it_computes_takes_no_time(time):
    stage = _begun(time, COSTS)
    _work(stage, "forward")
    _work(stage, "backward", received_s=0.5, decoded_s=1.5)
    assert (time.now_s, spent(stage)) == (5.0, (0, 0, 0))


def test_what_it_sends_is_compressed_before_it_goes_on(time):
    stage = _begun(time, COSTS)
    _work(stage, "forward")
    with stage.compressing(1):
        time.now_s += 0.25
    _work(stage, "backward")
    assert (time.now_s, spent(stage)) == (5.25, (0, 0.25, 0))


def test_measured_it_takes_what_it_takes_and_never_sleeps(time):
    stage = _begun(time, None)
    time.now_s = 1.0  # an update, a batch
    stage.rest()
    time.now_s = 4.0
    stage.begin(received_s=3.0, decoded_s=3.5)
    time.now_s = 6.0
    stage.end("forward")
    assert (time.now_s, spent(stage)) == (6.0, (2.5, 0.5, 0))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("parts", [1, 4, 7])
def test_a_pipeline_of_equal_stages_takes_what_the_papers_say(time, name, stages, parts):
    """(parts + stages - 1) (forward + backward), where messages take no time (GPipe, section 2)."""
    devices = [_begun(time, COSTS) for _ in range(stages)]
    left = [list(SCHEDULES[name](stage, stages, parts)) for stage in range(stages)]
    busy_s = [0.0] * stages
    ended: dict[tuple[int, str, int], float] = {}
    while any(left):
        for stage, work in enumerate(left):
            way, part = work[0] if work else ("", 0)
            source = stage + (-1 if way == "forward" else 1)
            needs = (source, way, part) if 0 <= source < stages else (stage, "forward", part)
            first = way == "forward" and stage == 0
            if not work or not (first or needs in ended):
                continue
            came_s = 0.0 if first else ended[needs]
            time.now_s = 0.0  # nothing real takes time
            devices[stage].begin(came_s, came_s)
            waited_s = devices[stage].waited_s
            devices[stage].end(way)
            busy_s[stage] += COSTS[way == "backward"]
            ended[stage, way, part] = waited_s + busy_s[stage]
            work.pop(0)
    assert max(ended.values()) == (parts + stages - 1) * sum(COSTS)
    for stage in devices:
        assert stage.late_s == 0
