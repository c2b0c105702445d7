"""The player follows the profile by the run's clock, and links.csv says what the kernel held."""

import csv
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from harness.emulation import links
from harness.emulation.network import Network
from harness.emulation.profile_player import Deadlines, Player
from harness.emulation.star import Star
from harness.records import run_directory
from profiles.base import Extremes, Link, Way
from tests.emulation.inside import Flat, inside


class Steps(Flat):
    """Gains 10 Mbit/s every emulated second; node 1 stays where it was."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return Link(10.0 + (0 if node else 10 * int(time_s)))

    def extremes(self) -> Extremes:
        return Extremes(10.0, 1000.0)


class HandClock:
    """A clock that a test sets."""

    def __init__(
        self, now: float | None = None, dilation: float = 1.0, begins_s: float = 0.0
    ) -> None:
        self.now, self.dilation, self.begins_s = now, dilation, begins_s

    def time_s(self) -> float | None:
        return self.now


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited 10 s"
        time.sleep(0.005)


def read_links(run_dir: Path) -> list[dict[str, str]]:
    with open(run_dir / "links.csv") as file:
        return list(csv.DictReader(file))


def told_by(run_dir: Path) -> list[dict]:
    return [e for e in run_directory.read_events(run_dir) if e["event"] == "conditions"]


@contextmanager
def played(clock: HandClock, **star: float) -> Iterator[tuple[Player, Path]]:
    """A player of `Steps` over a link, and the run directory that it writes to."""
    with TemporaryDirectory() as folder, Star(**star).up(1, Steps(10.0), 1.0) as network:
        run_directory.Table(Path(folder), "links.csv").header()
        yield Player(network, clock, Path(folder), run_directory.Events(Path(folder))), Path(folder)


@inside
def test_a_change_is_applied_read_back_and_recorded() -> None:
    clock = HandClock(dilation=2.0)
    with (
        TemporaryDirectory() as folder,
        Star(update_s=0.01, sample_s=0.01).up(2, Steps(10.0), 2.0) as network,
    ):
        run_dir = Path(folder)
        run_directory.Table(run_dir, "links.csv").header()
        player = Player(network, clock, run_dir, run_directory.Events(run_dir))
        up0, down0 = network.directions[:2]
        assert up0.applied_mbit == 10.0
        assert read_links(run_dir) == []  # nothing before step 0
        clock.now = 3.5
        wait_for(lambda: up0.applied_mbit == 40.0)
        held, _ = links.read_rate(network._ip, up0.place.shaper, "up0")
        assert held == 20.0, held  # real: dilation 2
        wait_for(lambda: any(row["applied_mbit"] == "40.0" for row in read_links(run_dir)))
        clock.now = 5.0
        wait_for(lambda: down0.applied_mbit == 60.0)
        player.stop()
        last = {row["link"]: row for row in read_links(run_dir)[-4:]}
        assert set(last) == {"up0", "down0", "up1", "down1"}, last
        assert last["up0"]["planned_mbit"] == last["up0"]["applied_mbit"] == "60.0", last
        assert last["up1"]["applied_mbit"] == "10.0", last
        told = told_by(run_dir)
        assert [e["planned_s"] for e in told] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], told
        assert [e["applied"] for e in told] == [False, False, False, True, False, True], told
        assert told[0]["links"] == dict.fromkeys(last, Link(10.0)._asdict()), told
        for event, mbit in zip(told[1:], (20, 30, 40, 50, 60), strict=True):
            assert event["links"] == dict.fromkeys(("up0", "down0"), {"rate_mbit": mbit}), event
        assert player.audit.summary()["changes"] == 2
        assert network.verify() == []


class Wild(Flat):
    """Rates and delays that change at times of their own, of each link."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        rate_mbit = 10.0 + int(time_s * (7 + node)) % 5
        return Link(rate_mbit, loss=0.0 if way == "up" else int(time_s) % 2 / 100)


def planned_by(told: list[dict]) -> list[dict[str, Link]]:
    """Conditions of every link from each event on, rebuilt."""
    found: list[dict[str, Link]] = []
    for event in told:
        known = dict(found[-1]) if found else {}
        for name, fields in event["links"].items():
            known[name] = known[name]._replace(**fields) if name in known else Link(**fields)
        found.append(known)
    return found


def told_to(network: Network, looks_s: list[float]) -> list[dict]:
    """Conditions told by a player that looks at the plan at these times only."""
    with TemporaryDirectory() as folder:
        run_directory.Table(Path(folder), "links.csv").header()
        clock = HandClock()
        player = Player(network, clock, Path(folder), run_directory.Events(Path(folder)))
        for clock.now in looks_s:
            wait_for(lambda: player._moment == int(clock.now * 10 + 1e-6))  # type: ignore[operator]
        player.stop()
        return told_by(Path(folder))


@inside
def test_the_plan_can_be_rebuilt_and_is_told_alike_however_late_the_player_is() -> None:
    plans = []
    with Star(update_s=0.1).up(2, Wild(10.0), 1.0) as network:
        for direction in network.directions:
            direction.impair = lambda ip, planned: None  # not every kernel has netem
        for looks_s in ([0.0, 0.7, 0.75, 2.0, 5.0], [5.0]):
            told = told_to(network, looks_s)
            plans.append(json.dumps([(event["planned_s"], event["links"]) for event in told]))
            for event, known in zip(told, planned_by(told), strict=True):
                for d in network.directions:
                    assert known[d.name] == d.conditions(event["planned_s"]), (event, d.name)
    assert plans[0] == plans[1]


@inside
def test_a_paused_clock_holds_the_conditions() -> None:
    with played(HandClock(2.0), update_s=0.01, sample_s=0.01) as (player, run_dir):
        wait_for(lambda: len(read_links(run_dir)) > 20)
        player.stop()
        rows = read_links(run_dir)[2:]  # the first may precede the first change
        assert {(r["time_s"], r["applied_mbit"]) for r in rows} == {("2.0", "30.0")}, rows
        assert len(told_by(run_dir)) == 3  # 10, 20 and 30 Mbit/s


@inside
def test_a_clock_that_begins_later_finds_the_profile_there_and_misses_nothing() -> None:
    clock = HandClock(begins_s=3.5)
    with played(clock, update_s=1.0, sample_s=0.01) as (player, run_dir):
        clock.now = 3.5
        wait_for(lambda: told_by(run_dir))
        player.stop()
        [told] = told_by(run_dir)
        assert told["applied"] and told["planned_s"] == 3.0 and told["late_ms"] == 0.0
        assert told["links"]["up0"]["rate_mbit"] == 40.0


@inside
def test_what_fails_in_the_thread_is_raised_by_stop() -> None:
    clock = HandClock(0.0)
    with played(clock, update_s=0.01) as (player, _):
        assert player.error is None
        clock.now = 1e9
        wait_for(lambda: player.error is not None)
        with pytest.raises(ValueError, match="link rate must be in"):
            player.stop()


@inside
def test_a_change_under_traffic_is_what_a_flow_then_gets() -> None:
    from harness.emulation import probe

    with Star().up(2, Steps(10.0), 1.0) as network:
        for direction in network.directions:
            direction.apply(network._ip, direction.conditions(9.0))
        (a, b), queue = network.nodes, network.describe()["queue_bytes"]
        path = probe.ProbePath(b.namespace, a.namespace, a.address, 10.0)  # up1 stayed at 10
        assert probe.measure_in_turn([path], 0.3, queue)[0].ok
        path = probe.ProbePath(network.switch, a.namespace, a.address, 100.0)
        assert probe.measure_in_turn([path], 0.3, queue)[0].ok
        up0 = network.directions[0]
        assert not up0.apply(network._ip, up0.conditions(9.0))  # nothing left to change


def test_missed_deadlines_are_skipped_and_the_others_stay_on_the_grid(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadlines = Deadlines(0.5)
    assert deadlines.take()
    assert not deadlines.take()
    now[0] = 102.25
    assert deadlines.take()
    assert deadlines.next_s == 102.5
