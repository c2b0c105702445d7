"""A star delays, loses and reorders as its profile says, beside its rates, and proves it."""

import json
import math
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from harness.emulation import impairments
from harness.emulation.dumbbell import Dumbbell
from harness.emulation.network import Network
from harness.emulation.star import Star
from profiles.base import Link, Way
from tests.emulation.inside import Flat, inside
from tests.emulation.packets import End, arrivals, flow, near, round_trip_ms
from tests.emulation.virtual import virtual
from tests.launching import TINY, harness, runs, state

JOB_S = 230
# what a machine of one processor and 10 ms timers carries in packets of one MTU
SLOW_MACHINE = ("steps=3", "profile.rate_mbit=50", "network.queue_ms=200", "network.probe_s=0.5")


class Lopsided(Flat):
    """Up takes another time than down, and node 1 is farther away."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        delay_ms = {"up": 5.0, "down": 15.0}[way] + 30.0 * node
        return self.conditions._replace(delay_ms=delay_ms)


class Stepping(Flat):
    """Delays grow by their first value every second."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return self.conditions._replace(delay_ms=self.conditions.delay_ms * (1 + int(time_s)))


def ends(network: Network) -> list[End]:
    return [End(node.namespace, node.address) for node in network.nodes]


@virtual
def test_a_round_trip_crosses_four_directions() -> None:
    for delay_ms in (0.5, 5.0, 25.0):
        with Star().up(2, Flat(100.0, delay_ms=delay_ms), 1.0) as network:
            taken_ms = round_trip_ms(*ends(network))
            assert network.verify() == [], network.verify()
        print(f"delay_ms={delay_ms}: round trip {taken_ms:.2f} ms, expected {4 * delay_ms}")
        assert near(taken_ms, 4 * delay_ms), (delay_ms, taken_ms)


@virtual
def test_each_direction_and_each_node_has_its_own_delay() -> None:
    with Star().up(2, Lopsided(100.0, delay_ms=45.0), 1.0) as network:
        taken_ms = round_trip_ms(*ends(network))
        assert near(taken_ms, 5 + 15 + 35 + 45), taken_ms


@virtual
def test_dilation_multiplies_delays_and_divides_rates() -> None:
    with Star().up(2, Flat(400.0, delay_ms=2.0), 10.0) as network:
        assert near(round_trip_ms(*ends(network)), 80.0)
        flowed = flow(*ends(network), seconds=4.0)
        assert near(flowed.rate_mbit, 40.0 * 0.956, least=0.0), flowed
    with Star().up(2, Flat(400.0, delay_ms=2.0, jitter_ms=1.0), 10.0) as network:
        for held in network.describe()["links"].values():
            assert (held["netem"][0]["delay_us"], held["netem"][0]["jitter_us"]) == (20_000, 10_000)


@virtual
def test_rate_and_delay_of_one_path_are_both_right() -> None:
    star = Star(queue_ms=200.0)  # the probe fills a quarter, the machine's timers are 10 ms
    with star.up(2, Flat(50.0, delay_ms=10.0), 1.0) as network:
        probes, trips = network.probe(), network.round_trips()
        assert all(found.ok for found in [*probes, *trips]), (probes, trips)
        assert near(round_trip_ms(*ends(network)), 40.0)
        flowed = flow(*ends(network), seconds=5.0)
        print(f"50 Mbit/s, delay_ms=10: {flowed}")
        assert near(flowed.rate_mbit, 50.0 * 0.956, least=0.0), flowed


@virtual
def test_loss_and_reordering_meet_each_packet_in_both_directions_it_crosses() -> None:
    with Star().up(2, Flat(100.0, loss=0.03), 1.0) as network:
        count = 5000
        lost = 1 - len(arrivals(*ends(network), count)) / count
    expected = 1 - 0.97**2
    print(f"loss=0.03: {lost:.4f} lost, expected {expected:.4f}")
    assert abs(lost - expected) < 5 * math.sqrt(expected / count), lost
    with Star().up(2, Flat(100.0, delay_ms=20.0, reorder=0.1), 1.0) as network:
        order = arrivals(*ends(network), 1000, every_s=0.0005)
        assert sorted(order) == list(range(1000)) != order


@virtual
def test_a_flow_loses_single_packets_of_one_mtu() -> None:
    with Star().up(2, Flat(100.0, delay_ms=1.0, loss=0.005), 1.0) as network:
        flowed = flow(*ends(network), seconds=6.0)
    share, expected = flowed.retransmits / flowed.segments, 1 - 0.995**2
    print(f"loss=0.005: {flowed}, {share:.4f} sent again, expected {expected:.4f}")
    assert flowed.segments > 2000, flowed
    assert abs(share - expected) < 5 * math.sqrt(expected / flowed.segments), flowed


@virtual
def test_a_change_of_the_delay_under_way_loses_nothing() -> None:
    with Star().up(2, Stepping(100.0, delay_ms=2.0), 1.0) as network:

        def change() -> None:
            for time_s in (3.0, 0.0, 9.0, 1.0, 4.0):
                for direction in network.directions:
                    assert direction.apply(network._ip, direction.conditions(time_s))
                time.sleep(0.1)  # the pace of the changes

        with ThreadPoolExecutor() as pool:
            changed = pool.submit(change)
            order = arrivals(*ends(network), 2000, every_s=0.0004)
            changed.result()
        assert sorted(order) == list(range(2000)), len(order)
        assert near(round_trip_ms(*ends(network)), 4 * 10.0)
        assert network.verify() == [], network.verify()


@virtual
def test_what_somebody_did_to_a_delay_is_noticed() -> None:
    with Star().up(2, Flat(100.0, delay_ms=5.0, loss=0.01), 1.0) as network:
        ours = [
            qdisc["index"]
            for qdisc in network._ip.get_qdiscs()
            if qdisc.get_attr("TCA_KIND") == "netem"
        ]
        assert len(ours) == 4, ours
        network._ip.tc("change", "netem", ours[0], impairments.HANDLE, delay=5000)
        network._ip.tc("del", "netem", ours[3], impairments.HANDLE)
        problems = sorted("is gone" in problem for problem in network.verify())
        # A qdisc that is gone is missed by its link and by its interface.
        assert problems == [False, True, True], network.verify()


@virtual
def test_sites_are_as_far_from_each_other_as_their_matrix_says() -> None:
    matrix = ((0.0, 10.0, 40.0), (20.0, 0.0, 0.0), (60.0, 0.0, 0.0))
    star = Star(sites=(0, 0, 1, 2), site_delays_ms=matrix)
    with star.up(4, Flat(100.0, delay_ms=1.0), 1.0) as network:
        assert all(trip.ok for trip in network.round_trips()), network.round_trips()
        here = ends(network)
        for there, away_ms, back_ms in ((1, 0.0, 0.0), (2, 10.0, 20.0), (3, 40.0, 60.0)):
            taken_ms = round_trip_ms(here[0], here[there])
            print(f"site {there}: asked 4 + {away_ms} + {back_ms} ms, took {taken_ms:.2f} ms")
            assert near(taken_ms, 4 + away_ms + back_ms), (there, taken_ms)
        assert network.verify() == [], network.verify()


@virtual
def test_a_trunk_delays_what_crosses_it_alone() -> None:
    with Dumbbell(left=2).up(3, Flat(50.0, delay_ms=15.0), 1.0) as network:
        left, also_left, right = ends(network)
        assert round_trip_ms(left, also_left) < 5.0
        assert near(round_trip_ms(left, right), 30.0)
        flowed = flow(left, right, 5.0)
        print(f"trunk of 50 Mbit/s, delay_ms=15: {flowed}")
        assert near(flowed.rate_mbit, 50.0 * 0.956, least=0.0), flowed


@virtual
def test_a_job_trains_through_delay_and_loss_and_proves_it() -> None:
    with TemporaryDirectory() as folder:
        done = job(Path(folder), *SLOW_MACHINE, "profile.delay_ms=20", "profile.loss=0.01")
        run = runs(Path(folder))[0]
        assert done.returncode == 0, told(done, run)
        summary = json.loads((run / "summary.json").read_text())
        assert summary["valid"], (summary["reasons"], told(done, run))
        assert summary["proof"]["readback"] == [], summary["proof"]
        environment = json.loads((run / "environment.json").read_text())
        assert "20000" in json.dumps(environment["network"]), environment["network"]


@inside
def test_a_kernel_without_netem_is_told_before_anything_starts() -> None:
    if impairments.available():
        with Star().up(2, Flat(100.0, delay_ms=5.0), 1.0) as network:
            assert near(round_trip_ms(*ends(network)), 20.0)
    else:
        with pytest.raises(Exception, match="has no netem .*modprobe sch_netem"):
            with Star().up(2, Flat(100.0, delay_ms=5.0), 1.0):
                pass
        with Star().up(2, Flat(100.0), 1.0) as network:  # rates alone need none
            assert network.verify() == []


def test_a_run_without_netem_ends_at_once_and_says_how_to_get_it(tmp_path: Path) -> None:
    done = job(tmp_path, "profile.delay_ms=20")
    if done.returncode == 0:
        assert state(runs(tmp_path)[0]) == "succeeded"  # this kernel has netem
    else:
        assert "this kernel has no netem" in done.stdout + done.stderr, done
        assert not any((run / "logs" / "rank0.log").exists() for run in runs(tmp_path))


def job(results: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """A small run on real packets, as a user starts it."""
    return harness(*TINY, *overrides, results=results, timeout=JOB_S)


def told(done: subprocess.CompletedProcess[str], run: Path) -> str:
    logs = (path.read_text() for path in run.glob("logs/*.log"))
    return "\n".join([done.stdout, done.stderr, *logs])
