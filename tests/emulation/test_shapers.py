"""A star and a dumbbell shaped by tbf carry what they were told, say so, and notice changes."""

import json
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.emulation import links
from harness.emulation.dumbbell import Dumbbell
from harness.emulation.errors import NetworkError
from harness.emulation.network import Network
from harness.emulation.packets import FRAME_BYTES
from harness.emulation.shapers import MOST_REFILLED
from harness.emulation.star import Star
from harness.emulation.token_bucket import TokenBucket, TokenBucketShape, longest_frame_bytes
from profiles.base import Extremes, Link, Way
from tests.emulation.inside import Flat, inside
from tests.emulation.packets import End, flow, near
from tests.launching import TINY, harness, runs

FULL_MBIT = 2**32 / 125_000  # 32 bits hold no more bytes/s


class Halving(Flat):
    """Half the rate from second 1 on."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        rate_mbit = self.conditions.rate_mbit
        return self.conditions._replace(rate_mbit=rate_mbit / 2 if time_s >= 1 else rate_mbit)

    def extremes(self) -> Extremes:
        return super().extremes()._replace(lowest_mbit=self.conditions.rate_mbit / 2)


def ends(network: Network) -> list[End]:
    return [End(node.namespace, node.address) for node in network.nodes]


@inside
def test_a_tbf_is_probed_read_back_and_recorded() -> None:
    with Star(shaper="tbf", probe_s=0.3).up(4, Flat(100.0), 1.0) as network:
        probes = network.probe()
        assert len(probes) == 8 and all(found.ok for found in probes), probes
        assert network.verify() == [], network.verify()
        told = network.describe()
        held = told["links"]["down3"]
        assert (held["kind"], held["rate_mbit"], held["burst_bytes"]) == ("tbf", 100.0, 25_000)
        assert held["limit_bytes"] == told["queue_bytes"] + 25_000, held
        assert (told["shaper"], told["burst_bytes"], told["burst_us"]) == ("tbf", 25_000, None)


@inside
def test_every_rate_of_a_tbf_is_read_back_as_set() -> None:
    with Star(shaper="tbf", burst_bytes=2000).up(1, Flat(10.0), 1.0) as network:
        up = network.directions[0]
        for rate_mbit in (0.001, 33.333, FULL_MBIT, FULL_MBIT + 1 / 125_000, 400_000.0, 5.0):
            up.apply(network._ip, Link(rate_mbit))
            held = links.read_alone(network._ip, up.shaper)
            limit = 2000 + up.queue_bytes
            rate = links.rate_bytes(rate_mbit) / 125_000
            assert held == TokenBucketShape(rate, 2000, limit), held
            assert network.verify() == [], network.verify()


@inside
def test_a_flow_gets_the_rate_of_a_tbf_before_and_after_a_change() -> None:
    with Star(shaper="tbf", burst_bytes=14_000).up(2, Halving(60.0), 1.0) as network:
        before = flow(*ends(network), seconds=2.0)
        for direction in network.directions:
            assert direction.apply(network._ip, direction.conditions(1.0))
        after = flow(*ends(network), seconds=2.0)
        print(f"60 Mbit/s: {before}; 30 Mbit/s: {after}")
        assert near(before.rate_mbit, 0.956 * 60, least=0.0), before
        assert near(after.rate_mbit, 0.956 * 30, least=0.0), after
        counted = network.counters()
        assert counted["up0"].bytes > 2 * 125_000 * 60 and counted["up1"].backlog_bytes == 0


@inside
def test_a_trunk_and_its_access_links_are_shaped_by_tbf() -> None:
    dumbbell = Dumbbell(shaper="tbf", access=Flat(80.0), probe_s=0.3)
    with dumbbell.up(2, Flat(40.0), 1.0) as network:
        assert all(found.ok for found in network.probe()), network.probe()
        kinds = {held["kind"] for held in network.describe()["links"].values()}
        assert kinds == {"tbf"} and network.verify() == []


@inside
def test_what_somebody_did_to_a_tbf_is_noticed() -> None:
    with Star(shaper="tbf").up(2, Flat(100.0), 1.0) as network:
        places = {d.name: d.place.shaper for d in network.directions}
        names = {index: name for index, name in socket.if_nameindex()}
        change = f"tc qdisc change dev {names[places['down1']]} handle 1: root tbf"
        subprocess.run(f"{change} rate 50mbit burst 9000 latency 20ms".split(), check=True)
        assert [problem.split()[0] for problem in network.verify()] == ["down1"]
        subprocess.run(f"tc qdisc del dev {names[places['up0']]} root".split(), check=True)
        assert "of up0: it is gone" in network.verify()[0], network.verify()
        with pytest.raises(NetworkError, match="up0 is no longer shaped"):
            network.counters()


@pytest.mark.network
@pytest.mark.launch
def test_a_job_trains_over_a_tbf_and_proves_it(tmp_path: Path) -> None:
    done = harness(*TINY, "network.shaper=tbf", results=tmp_path, timeout=300)
    run = runs(tmp_path)[0]
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["valid"] and summary["proof"]["readback"] == [], summary["reasons"]
    recorded = json.loads((run / "environment.json").read_text())["network"]
    assert {link["kind"] for link in recorded["links"].values()} == {"tbf"}, recorded


@inside
def test_a_burst_passes_at_once_after_a_pause() -> None:
    took_s = {}
    for burst_bytes in (3000, 100_000):
        star = Star(shaper="tbf", burst_bytes=burst_bytes)
        with star.up(2, Flat(8.0), 1.0) as network:
            took_s[burst_bytes] = _of_datagrams(network, count=40)
    wire_s = 40 * (1000 + 42) / 1e6
    print(f"40 datagrams, {1000 * wire_s:.0f} ms of the link: {took_s}")
    assert took_s[3000] > 0.8 * wire_s and took_s[100_000] < 0.5 * wire_s, took_s


def _of_datagrams(network: Network, count: int) -> float:
    """Seconds until all of `count` datagrams of 1000 bytes, sent at once, are there."""
    there, here = ends(network)[::-1]
    with there.namespace.entered():
        receiver = socket.socket(type=socket.SOCK_DGRAM)
    receiver.bind((there.address, 0))
    receiver.settimeout(5)
    with here.namespace.entered():
        sender = socket.socket(type=socket.SOCK_DGRAM)
    with sender, receiver:
        time.sleep(0.2)  # the bucket fills
        start_s = time.monotonic()
        for _ in range(count):
            sender.sendto(bytes(1000), receiver.getsockname())
        for _ in range(count):
            receiver.recv(2000)
        return time.monotonic() - start_s


def test_a_burst_of_ones_own_is_the_longest_packet_at_least() -> None:
    burst = {rate: _bucket(Star(shaper="tbf"), Flat(rate)).burst_bytes for rate in (1, 100, 1000)}
    assert burst == {1: longest_frame_bytes(1500), 100: 25_000, 1000: 250_000}
    kept = _bucket(Star(shaper="tbf", offload="keep"), Flat(100))
    assert kept.burst_bytes == longest_frame_bytes(65_536) > 65_536
    told = _bucket(Star(shaper="tbf", burst_bytes=9000, queue_ms=None, queue_bytes=50_000), Flat(1))
    assert told == TokenBucket(burst_bytes=9000, limit_bytes=50_000)
    assert Star(shaper="tbf").longest_burst_s(Flat(100), 1.0) == 0.002


def _bucket(star: Star, profile: Flat) -> TokenBucket:
    found = star.alone(profile, 1.0)
    assert isinstance(found, TokenBucket)
    return found


def refused(make: Callable[[], Star], profile: Flat, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make().check(2, profile, 1.0)


def test_what_a_shaper_cannot_do_is_refused_with_the_rule() -> None:
    refused(lambda: Star(shaper="cbq"), Flat(1), "shaper must be htb or tbf or netem_rate, got 'c")
    refused(lambda: Star(burst_bytes=5000), Flat(1), "burst_bytes must be null unless shaper=tbf")
    small = FRAME_BYTES - 1
    refused(lambda: Star(shaper="tbf", burst_bytes=small), Flat(1), r"in \[1514, .*, got 1513")
    most = round(50 * 125_000 * 0.1 * MOST_REFILLED)
    refused(
        lambda: Star(shaper="tbf", burst_bytes=most + 1),
        Halving(100),
        f"must be <= {most}, as a tbf fills its bucket at every change, .*; use shaper=htb",
    )
    Star(shaper="tbf", burst_bytes=most).check(2, Halving(100), 1.0)
    refused(lambda: Star(shaper="tbf", burst_bytes=9000), Flat(0.001), "passes in 60 s, got 9000")
    keep = "offload must be auto or off for a shaper whose limit counts packets"
    refused(lambda: Star(shaper="netem_rate", offload="keep"), Flat(1), keep)
    drains = "must drain within update_s at the lowest rate, .* got 0.105 s of 0.1; use shaper=htb"
    refused(lambda: Star(shaper="netem_rate"), Halving(40), drains)
